//! Generated names, for sets that a program makes for its own processes and does not name.

use super::Segment;
use crate::sys::clock;

/// The prefix of every generated name.
const GENERATED: &str = "auto-";

impl Segment {
    /// Returns a unique name, `auto-<pid>-<random hex>`, for a program that shares a set among its processes and has
    /// no name for it. `limitset gc` removes such sets when no process is attached. It never removes a set with
    /// another name.
    ///
    /// ```
    /// use limitset::Segment;
    ///
    /// let name = Segment::generated_name();
    /// assert!(name.starts_with(&format!("auto-{}-", std::process::id())));
    /// assert!(Segment::is_generated_name(&name) && !Segment::is_generated_name("auto-mobile"));
    /// ```
    pub fn generated_name() -> String {
        let random = u128::from_ne_bytes(clock::random()) >> 64;
        format!("{GENERATED}{}-{random:016x}", std::process::id())
    }

    /// Returns whether a name has the form that [`generated_name`](Self::generated_name) makes.
    pub fn is_generated_name(name: &str) -> bool {
        let rest = name.strip_prefix(GENERATED).and_then(|rest| rest.split_once('-'));
        rest.is_some_and(|(pid, random)| {
            let is_hex = |c: char| matches!(c, '0'..='9' | 'a'..='f');
            pid.parse::<u32>().is_ok() && !random.is_empty() && random.chars().all(is_hex)
        })
    }
}
