//! The closing text of a program's help, taken apart by its indentation.

/// A part under a heading.
#[derive(Debug, PartialEq, Eq)]
pub struct Section<'help> {
    /// Without its colon.
    pub heading: &'help str,
    /// In their order.
    pub paragraphs: Vec<Paragraph<'help>>,
}

/// Text, and the word or command that it is about.
#[derive(Debug, PartialEq, Eq)]
pub struct Paragraph<'help> {
    /// Empty for plain text.
    pub tag: &'help str,
    /// On one line.
    pub text: String,
}

/// The sections of `text`: each starts with a heading at the margin, ended by a colon, with text after it or below it. Two blanks introduce a
/// tag, whose text follows after two more or on lines that are indented further.
#[must_use]
pub fn sections(text: &str) -> Vec<Section<'_>> {
    text.split("\n\n").filter_map(section).collect()
}

fn section(text: &str) -> Option<Section<'_>> {
    let (heading, body) = text.trim_end().split_once(':')?;
    let mut paragraphs: Vec<Paragraph<'_>> = Vec::new();
    for line in body.lines().filter(|line| !line.trim().is_empty()) {
        let is_tagged = line.strip_prefix("  ").is_some_and(|rest| !rest.starts_with(' '));
        let (tag, words) = if is_tagged { line.trim().split_once("  ").unwrap_or((line.trim(), "")) } else { ("", line.trim()) };
        match paragraphs.last_mut().filter(|_| !is_tagged) {
            Some(last) if last.text.is_empty() => words.clone_into(&mut last.text),
            Some(last) => last.text.extend([" ", words]),
            None => paragraphs.push(Paragraph { tag, text: words.to_owned() }),
        }
    }
    Some(Section { heading, paragraphs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_tags_are_told_apart_by_indentation() {
        let help = "Forms: one, two,\nthree.\n\nSignals:\n  INT, TERM\n      end;\n      at once\n  HUP  nothing\n";
        let paragraph = |tag, text: &str| Paragraph { tag, text: text.to_owned() };
        let expected = [
            Section { heading: "Forms", paragraphs: vec![paragraph("", "one, two, three.")] },
            Section { heading: "Signals", paragraphs: vec![paragraph("INT, TERM", "end; at once"), paragraph("HUP", "nothing")] },
        ];
        assert_eq!(sections(help), expected);
    }

    #[test]
    fn the_bridges_help_has_every_exit_status_and_signal() {
        let help = bridge_cli::args::command().get_after_help().map(ToString::to_string).unwrap_or_default();
        let sections = sections(&help);
        let tags = |heading: &str| {
            let section = sections.iter().find(|section| section.heading == heading).unwrap_or_else(|| panic!("no {heading}"));
            assert!(section.paragraphs.iter().all(|paragraph| !paragraph.text.is_empty()), "{section:?}");
            section.paragraphs.iter().map(|paragraph| paragraph.tag).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(tags("Exit status"), "0 1 2 3 4 129, 130, 143");
        assert_eq!(tags("Signals"), "SIGINT, SIGTERM, SIGHUP SIGUSR1 SIGUSR2");
        assert_eq!(tags("Flag forms"), "");
        assert!(tags("Examples").starts_with("gpu-ebpf-bridge gpu-ebpf-bridge --mode=real"), "{sections:?}");
    }
}
