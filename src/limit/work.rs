//! Define: how large a work queue is, and when it gives up on an item.

use std::fmt;

use super::BadSetting;
/// Most items of a work queue.
pub(crate) const MAX_ITEMS: u32 = 1 << 20;
/// Longest payload and longest result of an item.
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
    /// Room for `items` items of at most `item_bytes` bytes each. Items that are waiting, at work, parked or dead
    /// letters need a place, and those that are done until somebody has collected their result.
    pub fn new(items: u32, item_bytes: u32) -> Self {
        Self { items, payload_bytes: item_bytes, result_bytes: item_bytes, giving_up: GivingUp::default() }
    }

    /// Most bytes of a result: as many as of an item unless set.
    pub fn result_bytes(mut self, bytes: u32) -> Self {
        self.result_bytes = bytes;
        self
    }

    /// How often an item is tried before it becomes a dead letter: 3 times unless set.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.giving_up.attempts = attempts;
        self
    }

    /// How often the other side may say "too many requests" to an item before it becomes a dead letter: 20 times
    /// unless set. These are no attempts.
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
                return bad(what, bytes, "at most 65536 bytes; put what is larger into a file");
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
