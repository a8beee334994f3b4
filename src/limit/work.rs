//! The size of a work queue, and when it gives up on an item.

use std::fmt;

use super::BadSetting;
/// The largest number of items in a work queue.
pub(crate) const MAX_ITEMS: u32 = 1 << 20;
/// The largest payload and the largest result of an item, in bytes.
pub(crate) const MAX_ITEM_BYTES: u32 = 1 << 16;

/// A [work queue](crate::WorkQueue) in the segment of a set; see
/// [`LimitSetBuilder::queue`](crate::LimitSetBuilder::queue).
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct QueueOptions {
    pub(crate) items: u32,
    pub(crate) payload_bytes: u32,
    pub(crate) result_bytes: u32,
    pub(crate) giving_up: GivingUp,
}

/// When an item becomes a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GivingUp {
    pub(crate) attempts: u32,
    pub(crate) rate_limits: u32,
}

impl Default for GivingUp {
    fn default() -> Self {
        Self { attempts: 3, rate_limits: 20 }
    }
}

impl QueueOptions {
    /// Options for a queue of `items` items of at most `item_bytes` bytes each. An item takes a place while
    /// it waits, is leased, is parked or is a dead letter; a finished item keeps its place until its result
    /// is collected.
    pub fn new(items: u32, item_bytes: u32) -> Self {
        Self { items, payload_bytes: item_bytes, result_bytes: item_bytes, giving_up: GivingUp::default() }
    }

    /// Sets the largest result, in bytes: the size of an item unless set.
    pub fn result_bytes(mut self, bytes: u32) -> Self {
        self.result_bytes = bytes;
        self
    }

    /// Sets how many attempts an item gets before it becomes a dead letter: 3 unless set.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.giving_up.attempts = attempts;
        self
    }

    /// Sets how many "too many requests" answers an item may get before it becomes a dead letter: 20 unless
    /// set. These do not count as attempts.
    pub fn rate_limits(mut self, times: u32) -> Self {
        self.giving_up.rate_limits = times;
        self
    }

    pub(crate) fn check(&self) -> Result<(), BadSetting> {
        const { assert!(MAX_ITEMS == 1_048_576 && MAX_ITEM_BYTES == 65_536) };
        let bad = |what, found: u32, expected| Err(BadSetting { what, found: found.to_string(), expected });
        let Self { items, payload_bytes, result_bytes, giving_up } = *self;
        if !(1..=MAX_ITEMS).contains(&items) {
            return bad("the number of items in a queue", items, "from 1 to 1048576");
        }
        for (what, bytes) in [("the size of an item", payload_bytes), ("the size of a result", result_bytes)]
        {
            if bytes > MAX_ITEM_BYTES {
                return bad(what, bytes, "at most 65536 bytes; put larger data into a file");
            }
        }
        giving_up.check()
    }
}

impl GivingUp {
    pub(crate) fn check(self) -> Result<(), BadSetting> {
        for (what, times) in
            [("the number of attempts", self.attempts), ("the number of 429s of an item", self.rate_limits)]
        {
            if times == 0 {
                return Err(BadSetting { what, found: "0".to_owned(), expected: "at least 1" });
            }
        }
        Ok(())
    }
}

impl fmt::Display for GivingUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a queue that gives up after {} attempts or {} 429s", self.attempts, self.rate_limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_that_cannot_be_are_named() {
        let bad = |it: QueueOptions| it.check().unwrap_err().to_string();
        assert!(bad(QueueOptions::new(0, 8)).contains("items in a queue cannot be 0"));
        assert!(bad(QueueOptions::new(u32::MAX, 8)).contains("from 1 to 1048576"));
        assert!(bad(QueueOptions::new(1, 65_537)).contains("size of an item"));
        assert!(bad(QueueOptions::new(1, 0).result_bytes(u32::MAX)).contains("size of a result"));
        assert!(bad(QueueOptions::new(1, 0).attempts(0)).contains("attempts cannot be 0"));
        assert!(bad(QueueOptions::new(1, 0).rate_limits(0)).contains("429s"));
        assert_eq!(QueueOptions::new(1 << 20, 1 << 16).check(), Ok(()));
    }
}
