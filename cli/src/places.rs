//! Locates faults in a file of sets: line, column, and the line with a mark below the fault.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::grammar::BadText;
use crate::text;

/// The text of a file and the positions of its values. Positions are in bytes.
pub(crate) struct Places<'t> {
    text: &'t str,
    sets: Option<Spanned<DeTable<'t>>>,
}

impl<'t> Places<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text, sets: DeTable::parse(text).ok() }
    }

    /// Returns a failure of the file as a whole.
    pub(crate) fn bad_file(&self, error: &toml::de::Error) -> Failure {
        self.at(error.span(), Failure::new(Exit::Usage, "bad_file", error.message()))
    }

    /// Returns a failure of a set as a whole, located at its name.
    pub(crate) fn set(&self, set: &str, failure: Failure) -> Failure {
        let found = self.sets.as_ref().and_then(|sets| sets.get_ref().get_key_value(set));
        self.at(found.map(|(name, _)| name.span()), failure.about(format_args!("[{set}]")))
    }

    /// Returns a failure of one value of a set, located at the value.
    pub(crate) fn value(&self, set: &str, key: &str, failure: Failure) -> Failure {
        match self.find(set, key) {
            Some(value) => self.at(Some(value.span()), failure.about(format_args!("[{set}]"))),
            None => self.set(set, failure),
        }
    }

    /// Returns a failure of one limit of a set, located at the limit. `index` counts from 0.
    pub(crate) fn limit(&self, set: &str, index: usize, failure: Failure) -> Failure {
        let limit = self.find(set, "limits").and_then(|it| it.get_ref().as_array()?.get(index));
        match limit {
            Some(limit) => self.at(Some(limit.span()), failure.about(format_args!("[{set}]"))),
            None => self.set(set, failure),
        }
    }

    /// Returns a failure within the text of one limit, located at the faulty characters.
    pub(crate) fn limit_text(&self, set: &str, index: usize, bad: BadText) -> Failure {
        let limit = self.find(set, "limits").and_then(|it| it.get_ref().as_array()?.get(index));
        self.within(set, limit, bad)
    }

    /// Returns a failure within a text of one of a set's tables. Of several equal texts it takes the first:
    /// they have the same fault.
    pub(crate) fn text_in(&self, set: &str, table: &str, bad: BadText) -> Failure {
        let table = self.find(set, table).and_then(|it| it.get_ref().as_table());
        let is_it = |it: &&Spanned<DeValue<'_>>| it.get_ref().as_str() == Some(&*bad.text);
        self.within(set, table.and_then(|table| table.values().find(is_it)), bad)
    }

    fn find(&self, set: &str, key: &str) -> Option<&Spanned<DeValue<'t>>> {
        self.sets.as_ref()?.get_ref().get(set)?.get_ref().as_table()?.get(key)
    }

    fn within(&self, set: &str, value: Option<&Spanned<DeValue<'_>>>, bad: BadText) -> Failure {
        let Some(value) = value else { return self.set(set, bad.into()) };
        let whole = value.span();
        // Without escapes, the text between the quotes equals the parsed text, and positions carry over.
        let start = whole.start + 1;
        let is_plain = self.text.get(start..).is_some_and(|rest| rest.starts_with(&bad.text));
        let bytes = |chars: usize| bad.text.chars().take(chars).map(char::len_utf8).sum::<usize>();
        let place = match is_plain {
            true => start + bytes(bad.at.start)..start + bytes(bad.at.end),
            false => whole,
        };
        let failure = if is_plain { Failure::new(Exit::Usage, "bad_text", bad.what) } else { bad.into() };
        self.at(Some(place), failure.about(format_args!("[{set}]")))
    }

    /// Prefixes the message with line and column, and adds the line with a mark as the excerpt.
    fn at(&self, place: Option<Range<usize>>, failure: Failure) -> Failure {
        let found = place.and_then(|place| Some((self.text.get(..place.start)?, place)));
        let Some((before, place)) = found else { return failure };
        let number = before.matches('\n').count() + 1;
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = self.text.get(line_start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
        let chars = |to: usize| {
            let to = to.saturating_sub(line_start).min(line.len());
            line.get(..to).map_or(0, |start| start.chars().count())
        };
        let marked = chars(place.start)..chars(place.end);
        let column = marked.start + 1;
        let (line, mark) = text::marked(line, &marked);
        let blank = " ".repeat(number.to_string().len());
        Failure {
            excerpt: Some(format!("{blank} |\n{number} | {line}\n{blank} | {mark}")),
            ..failure.about(format_args!("line {number}, column {column}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# 価格\n[\"a b\"]\nlimits = [\"調べる=5/mni\", 'x=0', \"q\\u0061=\"]\r\n\
                        cooldown = { first = \"1s\", last_gap = \"5\" }\n\t[web]\n\tmode = \"9\"\n";

    fn bad(text: &str, at: Range<usize>) -> BadText {
        BadText { text: text.to_owned(), at, what: "wrong".to_owned() }
    }

    fn failure() -> Failure {
        Failure::usage("wrong")
    }

    #[test]
    fn a_mistake_is_pointed_at_in_its_line() {
        let places = Places::new(FILE);
        let limits = "3 | limits = [\"調べる=5/mni\", 'x=0', \"q\\u0061=\"]\n  | ";
        for (found, said, line, mark) in [
            (
                places.limit_text("a b", 0, bad("調べる=5/mni", 6..9)),
                "line 3, column 18: [a b]: wrong",
                limits,
                (20, 3),
            ),
            (places.limit("a b", 1, failure()), "line 3, column 24: [a b]: wrong", limits, (26, 5)),
            // With an escape, the parsed text differs from the text of the file.
            (
                places.limit_text("a b", 2, bad("qa=", 3..4)),
                "line 3, column 31: [a b]: \"qa=\", character 4: wrong",
                limits,
                (33, 10),
            ),
            (
                places.text_in("a b", "cooldown", bad("5", 0..1)),
                "line 4, column 40: [a b]: wrong",
                "4 | cooldown = { first = \"1s\", last_gap = \"5\" }\n  | ",
                (39, 1),
            ),
            (places.set("web", failure()), "line 5, column 3: [web]: wrong", "5 |  [web]\n  | ", (2, 3)),
            (
                places.value("web", "mode", failure()),
                "line 6, column 9: [web]: wrong",
                "6 |  mode = \"9\"\n  | ",
                (8, 3),
            ),
            (places.value("web", "group", failure()), "line 5, column 3: [web]: wrong", "", (2, 3)),
        ] {
            assert!(found.message.starts_with(said), "{said}: {}", found.message);
            let excerpt = found.excerpt.unwrap();
            assert!(excerpt.contains(line), "{excerpt}");
            let (before, length) = mark;
            let expected = format!("  | {}{}", " ".repeat(before), "^".repeat(length));
            assert_eq!(excerpt.lines().last(), Some(&*expected), "{excerpt}");
        }
        assert_eq!(places.set("none", failure()).message, "[none]: wrong");
        assert_eq!(places.limit("none", 7, failure()).excerpt, None);
    }
}
