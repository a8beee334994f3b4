//! A cursor over a text, and errors that point at a position in it.

use std::fmt;
use std::ops::Range;

use limitset::limit::CALL_COUNT;

use crate::text;

/// The word for [`CALL_COUNT`] in this grammar.
const CALLS: &str = "calls";

/// A text that violates the grammar, with the fault and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadText {
    /// The whole text.
    pub(crate) text: String,
    /// The position of the fault, in characters.
    pub(crate) at: Range<usize>,
    /// The fault, and the expected text.
    pub(crate) what: String,
}

impl fmt::Display for BadText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, character {}: {}", self.text, self.at.start + 1, self.what)
    }
}

impl std::error::Error for BadText {}

impl BadText {
    /// Returns the text with a mark in a second line, below the fault.
    pub(crate) fn excerpt(&self) -> String {
        let (text, mark) = text::marked(&self.text, &self.at);
        format!("  {text}\n  {mark}")
    }
}

/// Reads a text from left to right.
pub(crate) struct Cursor<'a> {
    text: &'a str,
    chars: Vec<char>,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, chars: text.chars().collect(), at: 0 }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn is_done(&self) -> bool {
        self.at >= self.chars.len()
    }

    pub(crate) fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    pub(crate) fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += 1;
        Some(c)
    }

    /// Consumes a character if it is the next one.
    pub(crate) fn take(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        self.at += usize::from(found);
        found
    }

    /// Consumes and returns all characters up to the first that does not fit.
    pub(crate) fn take_while(&mut self, fits: impl Fn(char) -> bool) -> String {
        let from = self.at;
        while self.peek().is_some_and(&fits) {
            self.at += 1;
        }
        self.chars.get(from..self.at).unwrap_or_default().iter().collect()
    }

    /// Returns an error that marks the text from a position to the cursor.
    pub(crate) fn wrong_since(&self, from: usize, what: impl Into<String>) -> BadText {
        BadText { text: self.text.to_owned(), at: from..self.at.max(from), what: what.into() }
    }

    /// Returns an error that names the expected text and the character found at the cursor.
    pub(crate) fn expected(&self, what: &str) -> BadText {
        let what = match self.peek() {
            Some(c) => format!("unexpected {c:?}, expected {what}"),
            None => format!("unexpected end of input, expected {what}"),
        };
        BadText { text: self.text.to_owned(), at: self.at..self.at + 1, what }
    }

    /// Reads a key: bare, or in quotes. The bare word `calls` is the default key of call limits.
    pub(crate) fn key(&mut self) -> Result<String, BadText> {
        let from = self.at;
        if self.take('"') {
            let mut key = String::new();
            loop {
                match self.next() {
                    Some('"') => return Ok(key),
                    Some('\\') => key.extend(self.next()),
                    Some(c) => key.push(c),
                    None => {
                        return Err(self.wrong_since(from, "unclosed quote: add a \" at the end of the key"));
                    }
                }
            }
        }
        let key = self.take_while(is_bare);
        match key.as_str() {
            "" => Err(self.expected("a key such as tokens")),
            CALLS => Ok(CALL_COUNT.to_owned()),
            _ => Ok(key),
        }
    }

    /// Reads a whole number: digits, with _ between them, and an optional k, M or G.
    pub(crate) fn number(&mut self) -> Result<u64, BadText> {
        let from = self.at;
        let digits = self.take_while(|c| c.is_ascii_digit() || c == '_');
        if !digits.starts_with(|c: char| c.is_ascii_digit()) {
            self.at = from;
            return Err(self.expected("a whole number such as 500 or 200k"));
        }
        let unit = match self.peek() {
            Some('k') => Some(1_000),
            Some('M') => Some(1_000_000),
            Some('G') => Some(1_000_000_000),
            _ => None,
        };
        self.at += usize::from(unit.is_some());
        let number = digits.replace('_', "").parse::<u64>().ok();
        let number = number.and_then(|number| number.checked_mul(unit.unwrap_or(1)));
        number.ok_or_else(|| self.wrong_since(from, format!("number too large: the maximum is {}", u64::MAX)))
    }
}

/// Returns whether a key may contain this character without quotes.
pub(super) fn is_bare(c: char) -> bool {
    !matches!(c, '=' | ':' | '/' | '"' | '\\' | ',') && !c.is_whitespace() && !c.is_control()
}

/// Formats a key in this grammar.
pub(crate) fn show_key(key: &str) -> String {
    if key == CALL_COUNT {
        return CALLS.to_owned();
    }
    if !key.is_empty() && key != CALLS && key.chars().all(is_bare) {
        return key.to_owned();
    }
    format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""))
}
