//! `book`: the pages under docs/ as a book, its links checked.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::say::say;
use crate::{setup, shell, tools};

const PAGES: &str = "docs";
const SUMMARY: &str = "SUMMARY.md";
/// Where `book.toml` has it built.
const BUILT: &str = "target/book";

/// What mdbook calls before it renders.
#[derive(Debug, clap::Args)]
pub(crate) struct LinksArgs {
    /// `supports RENDERER` is asked first: every one is
    question: Vec<String>,
}

/// Builds the book and says where it is.
///
/// # Errors
/// As [`check`].
pub(crate) fn run() -> Result<()> {
    setup::ensure()?;
    check(&tools::python()?)?;
    say!("{BUILT}/index.html");
    Ok(())
}

/// Builds the book and looks at every link in it that leads to a page or a place on one.
///
/// # Errors
/// When a page is not in the summary or the other way round, mdbook refuses something, or a link leads nowhere.
pub(crate) fn check(tools: &tools::Python) -> Result<()> {
    let summary = fs::read_to_string(Path::new(PAGES).join(SUMMARY)).with_context(|| format!("cannot read {PAGES}/{SUMMARY}"))?;
    let pages = pages()?;
    let left_out = left_out(&summary, &pages);
    if !left_out.is_empty() {
        bail!("not in {PAGES}/{SUMMARY}: {}", left_out.join(", "));
    }
    // What an earlier build left would satisfy links to pages that are no more.
    if Path::new(BUILT).exists() {
        fs::remove_dir_all(BUILT).with_context(|| format!("cannot remove {BUILT}"))?;
    }
    // This program, and not another cargo on it.
    let links = format!("{} book-links", std::env::current_exe().context("cannot tell where this program lies")?.display());
    let environment = [("MDBOOK_LOG", "warn"), ("MDBOOK_PREPROCESSOR__REPOSITORY_LINKS__COMMAND", &links)];
    shell::run(shell::command(&tools.mdbook).arg("build").envs(environment))?;
    let rendered = entries(BUILT, "html")?.into_iter().filter(|page| !page.ends_with("404.html"));
    shell::run(
        shell::command(&tools.lychee)
            .args(["--offline", "--include-fragments", "--no-progress", "--root-dir"])
            .arg(fs::canonicalize(BUILT)?)
            .args(rendered),
    )
}

/// The names of all pages.
fn pages() -> Result<Vec<String>> {
    let name = |page: PathBuf| page.file_name().map(|name| name.to_string_lossy().into_owned());
    Ok(entries(PAGES, "md")?.into_iter().filter_map(name).filter(|name| name != SUMMARY).collect())
}

fn entries(folder: &str, extension: &str) -> Result<Vec<PathBuf>> {
    let mut entries: Vec<_> =
        fs::read_dir(folder).with_context(|| format!("cannot list {folder}"))?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    entries.retain(|path| path.extension().is_some_and(|found| found == extension));
    entries.sort();
    Ok(entries)
}

/// Pages that nobody who reads the book would find.
fn left_out<'a>(summary: &str, pages: &'a [String]) -> Vec<&'a str> {
    pages.iter().filter(|page| !summary.contains(&format!("]({page})"))).map(String::as_str).collect()
}

/// Answers mdbook: the book that comes on standard input, with links that lead out of it made to lead to the repository.
///
/// # Errors
/// When it is not what mdbook gives to its preprocessors.
pub(crate) fn links(args: &LinksArgs) -> Result<()> {
    if !args.question.is_empty() {
        return Ok(());
    }
    let mut input = String::new();
    io::stdin().read_to_string(&mut input)?;
    let (_context, mut book): (Value, Value) = serde_json::from_str(&input).context("not a book of mdbook's")?;
    lead_out(&mut book);
    serde_json::to_writer(io::stdout().lock(), &book)?;
    Ok(())
}

/// Changes the contents of all chapters, however deep they lie.
fn lead_out(book: &mut Value) {
    match book {
        Value::Array(items) => items.iter_mut().for_each(lead_out),
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(content) if name == "content" => *content = with_repository_links(content),
                    other => lead_out(other),
                }
            }
        }
        _ => {}
    }
}

fn with_repository_links(page: &str) -> String {
    let mut parts = page.split("](../");
    let mut changed = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let kind = if Path::new(part.split([')', '#']).next().unwrap_or_default()).is_dir() { "tree" } else { "blob" };
        changed.push_str(&format!("]({}/{kind}/HEAD/{part}", env!("CARGO_PKG_REPOSITORY")));
    }
    changed
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

    #[test]
    fn links_out_of_the_book_lead_to_the_repository_in_every_chapter() {
        let mut book = json!({"items": [
            {"Chapter": {"content": "[a](../include/a.h#x), [b](b.md), ![c](c.svg)", "path": "a.md", "sub_items": [
                {"Chapter": {"content": "no link, [d](../no/such/folder)", "sub_items": []}}
            ]}},
            "Separator"
        ]});
        lead_out(&mut book);
        let first = &book["items"][0]["Chapter"];
        assert_eq!(first["content"], format!("[a]({REPOSITORY}/blob/HEAD/include/a.h#x), [b](b.md), ![c](c.svg)"));
        assert_eq!(first["sub_items"][0]["Chapter"]["content"], format!("no link, [d]({REPOSITORY}/blob/HEAD/no/such/folder)"));
        assert_eq!(first["path"], "a.md");
    }

    #[test]
    fn folders_are_shown_as_such() {
        assert_eq!(with_repository_links("[s](../src)"), format!("[s]({REPOSITORY}/tree/HEAD/src)"));
    }

    #[test]
    fn a_page_that_the_summary_does_not_name_is_found() {
        let pages = ["a.md", "b.md", "c.md"].map(str::to_owned);
        assert_eq!(left_out("- [A](a.md)\n  - [C c](c.md)\n- b.md\n", &pages), ["b.md"]);
    }
}
