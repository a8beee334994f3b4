//! Needs: `tokens=100`.

use super::cursor::{BadText, Cursor};

/// The amounts that a request needs, by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs(Vec<(String, u64)>);

impl Needs {
    /// Returns the amounts in the form that requests take.
    pub(crate) fn amounts(&self) -> Vec<(&str, u64)> {
        self.0.iter().map(|(key, amount)| (key.as_str(), *amount)).collect()
    }
}

/// Reads needs, each `KEY=NUMBER`. The set checks later that the keys exist.
pub(crate) fn needs<T: AsRef<str>>(texts: &[T]) -> Result<Needs, BadText> {
    texts.iter().map(|text| need(text.as_ref())).collect::<Result<_, _>>().map(Needs)
}

fn need(text: &str) -> Result<(String, u64), BadText> {
    let mut cursor = Cursor::new(text);
    let key = cursor.key()?;
    if !cursor.take('=') {
        return Err(cursor.expected("= and a number, as in tokens=100"));
    }
    let number = cursor.number()?;
    if cursor.is_done() { Ok((key, number)) } else { Err(cursor.expected("the end: a need is KEY=NUMBER")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_are_read_and_what_is_none_is_pointed_at() {
        let read = needs(&["tokens=1_500", "\"a=b\"=0"]).unwrap();
        assert_eq!(read.amounts(), [("tokens", 1_500), ("a=b", 0)]);
        for (text, at) in [("tokens", 6..7), ("tokens=", 7..8), ("tokens=5/min", 8..9), ("=5", 0..1)] {
            assert_eq!(needs(&[text]).unwrap_err().at, at, "{text}");
        }
    }
}
