//! docs/deployment.md, as the tests read it.

use std::fs;

use crate::artifacts::source;

/// Its text.
///
/// # Panics
/// When it is missing.
#[must_use]
pub fn text() -> String {
    let page = source("docs/deployment.md");
    fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

/// The fenced blocks of a language.
///
/// # Panics
/// When there is none.
#[must_use]
#[track_caller]
pub fn blocks(language: &str) -> Vec<String> {
    let page = text();
    let fenced = page.split("```").skip(1).step_by(2);
    let blocks: Vec<_> = fenced.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).map(str::to_owned).collect();
    assert!(!blocks.is_empty(), "no {language}");
    blocks
}

/// Every command, a line each.
#[must_use]
#[track_caller]
pub fn commands() -> Vec<String> {
    blocks("sh").iter().flat_map(|block| block.lines()).filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
}

/// Those that begin like this.
///
/// # Panics
/// When there are not so many.
#[must_use]
#[track_caller]
pub fn commands_like(beginning: &str, number: usize) -> Vec<String> {
    let commands: Vec<_> = commands().into_iter().filter(|command| command.starts_with(beginning)).collect();
    assert_eq!(commands.len(), number, "{commands:?}");
    commands
}
