//! Reading what BPF iterators print, and taking it apart.

use std::io::Read;
use std::str::{FromStr, SplitN};

use libbpf_rs::{Iter, Link};

use crate::Error;

/// Runs the iterator once, from its first element to its last, and parses each line.
pub(crate) fn read_lines<T>(program: &'static str, link: &Link, parse: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, Error> {
    let mut iterator = Iter::new(link).map_err(|source| Error::Attach { program, source })?;
    let mut printed = Vec::new();
    iterator.read_to_end(&mut printed).map_err(|source| Error::Read { program, source })?;
    // A process may have given itself a name that is not UTF-8.
    String::from_utf8_lossy(&printed)
        .lines()
        .map(|line| parse(line).ok_or_else(|| Error::Line { program, line: line.to_owned() }))
        .collect()
}

/// The values of a line, separated by single spaces.
pub(crate) struct Fields<'line>(SplitN<'line, char>);

impl<'line> Fields<'line> {
    /// Splits into `count` fields; the last one keeps its spaces.
    pub(crate) fn new(line: &'line str, count: usize) -> Self {
        Self(line.splitn(count, ' '))
    }

    pub(crate) fn next<T: FromStr>(&mut self) -> Option<T> {
        self.0.next()?.parse().ok()
    }

    /// Nothing is left over.
    pub(crate) fn end(mut self) -> Option<()> {
        self.0.next().is_none().then_some(())
    }
}
