//! Texts as they are shown on a terminal.

/// A text that another program wrote, without what a terminal would obey.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { '?' } else { character }).collect()
}

/// `-` for what is not known, or empty.
#[must_use]
pub fn or_dash(text: Option<String>) -> String {
    text.filter(|text| !text.is_empty()).unwrap_or_else(|| "-".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_not_shown() {
        assert_eq!(printable("T4\x1b[2J\n\u{9b}é"), "T4?[2J??é");
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        assert_eq!([None, Some(String::new()), Some("0".to_owned())].map(or_dash), ["-", "-", "0"]);
    }
}
