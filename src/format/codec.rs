//! The codec of the definition region: encodes a [`Definition`] to bytes and decodes it. Another process may
//! have written the bytes: a checksum covers them, and every value is checked as well.

use std::collections::BTreeMap;
use std::time::Duration;

use bytemuck::Zeroable;

use super::Fnv;
use super::definition::{DefinitionHead, LimitDefinition};
use crate::limit::{
    Algorithm, CallLimit, Cooldown, Definition, GivingUp, Limit, MAX_KEY_BYTES, Order, Rate, RateLimit,
    Report, ResourceLimit, validate,
};

const RATE: u32 = 1;
const CALL: u32 = 2;
const RESOURCE: u32 = 3;

impl Definition {
    /// Encodes the definition region.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let mut config = Vec::new();
        for (key, value) in &self.config {
            config.extend(count(key.len()).to_ne_bytes());
            config.extend(count(value.len()).to_ne_bytes());
            config.extend(key.as_bytes());
            config.extend(value.as_bytes());
        }
        let mut head = DefinitionHead {
            limits: count(self.limits.len()),
            config_entries: count(self.config.len()),
            config_bytes: count(config.len()),
            order: self.order.number(),
            most_attempts: self.giving_up.attempts,
            most_rate_limits: self.giving_up.rate_limits,
            ..DefinitionHead::zeroed()
        };
        self.cooldown.store(&mut head);
        let mut rest = Vec::new();
        for limit in &self.limits {
            rest.extend(bytemuck::bytes_of(&limit.stored()));
        }
        rest.extend(config);
        head.checksum = checksum(&head, &rest);
        let mut bytes = bytemuck::bytes_of(&head).to_vec();
        bytes.extend(rest);
        bytes
    }

    /// Decodes a copy of a definition region.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let cut = "is cut short";
        let (head, rest) = bytes.split_at_checked(size_of::<DefinitionHead>()).ok_or(cut)?;
        let head: DefinitionHead = bytemuck::pod_read_unaligned(head);
        let limit_bytes = (head.limits as usize).checked_mul(size_of::<LimitDefinition>()).ok_or(cut)?;
        let length = limit_bytes.checked_add(head.config_bytes as usize).ok_or(cut)?;
        let rest = rest.get(..length).ok_or(cut)?;
        if head.checksum != checksum(&head, rest) {
            return Err("has a checksum that does not fit its bytes");
        }
        let (limits, config) = rest.split_at_checked(limit_bytes).ok_or(cut)?;
        let limits = limits.chunks_exact(size_of::<LimitDefinition>());
        let limits = limits.map(|it| Limit::from_stored(&bytemuck::pod_read_unaligned(it)));
        let limits = limits.collect::<Result<Vec<_>, _>>()?;
        validate(&limits).map_err(|_| "describes an invalid limit")?;
        let order = [Order::Arrival, Order::Any].into_iter().find(|order| order.number() == head.order);
        let order = order.ok_or("names an unknown order")?;
        let cooldown = Cooldown::from_stored(&head)?;
        let giving_up = GivingUp { attempts: head.most_attempts, rate_limits: head.most_rate_limits };
        giving_up.check().map_err(|_| "describes an invalid queue")?;
        Ok(Self { limits, config: decode_config(config, head.config_entries)?, order, cooldown, giving_up })
    }
}

fn checksum(head: &DefinitionHead, rest: &[u8]) -> u64 {
    let head = DefinitionHead { checksum: 0, ..*head };
    Fnv::new().bytes(bytemuck::bytes_of(&head)).bytes(rest).0
}

fn decode_config(mut bytes: &[u8], entries: u32) -> Result<BTreeMap<String, String>, &'static str> {
    let cut = "has a config map that is cut short";
    let mut config = BTreeMap::new();
    for _ in 0..entries {
        let mut text = [0, 0];
        for length in &mut text {
            let (first, rest) = bytes.split_first_chunk().ok_or(cut)?;
            (*length, bytes) = (u32::from_ne_bytes(*first) as usize, rest);
        }
        let mut next = |length| {
            let (text, rest) = bytes.split_at_checked(length).ok_or(cut)?;
            bytes = rest;
            String::from_utf8(text.to_vec()).map_err(|_| "has a config map that is not text")
        };
        let [key, value] = text;
        config.insert(next(key)?, next(value)?);
    }
    Ok(config)
}

impl Limit {
    fn stored(&self) -> LimitDefinition {
        let mut stored = LimitDefinition {
            key_bytes: u32::try_from(self.name().len()).unwrap_or(u32::MAX),
            kind: match self {
                Self::Rate(_) => RATE,
                Self::Call(_) => CALL,
                Self::Resource(_) => RESOURCE,
            },
            must_report: self.must_report().into(),
            capacity: self.capacity(),
            ..LimitDefinition::zeroed()
        };
        for (to, from) in stored.key.iter_mut().zip(self.name().as_bytes()) {
            *to = *from;
        }
        if let Some(rate) = self.rate() {
            stored.algorithm = rate.algorithm.number();
            stored.resolution = rate.resolution.unwrap_or(0);
            stored.window_nanos = rate.window_nanos();
            stored.burst = rate.burst.unwrap_or(0);
        }
        stored
    }

    fn from_stored(stored: &LimitDefinition) -> Result<Self, &'static str> {
        const { assert!(MAX_KEY_BYTES == 64) };
        let key = stored.key.get(..stored.key_bytes as usize).ok_or("has a key that is too long")?;
        let key = str::from_utf8(key).map_err(|_| "has a key that is not text")?.to_owned();
        let capacity = stored.capacity;
        if stored.kind == RESOURCE {
            return Ok(Self::Resource(ResourceLimit { key, capacity }));
        }
        let rate = Rate {
            key,
            capacity,
            window: Duration::from_nanos(stored.window_nanos),
            algorithm: Algorithm::from_number(stored.algorithm).ok_or("names an unknown algorithm")?,
            burst: Some(stored.burst).filter(|burst| *burst != 0),
            resolution: Some(stored.resolution).filter(|resolution| *resolution != 0),
        };
        match stored.kind {
            RATE => {
                let report = if stored.must_report == 1 { Report::Required } else { Report::Optional };
                Ok(Self::Rate(RateLimit { rate, report }))
            }
            CALL => Ok(Self::Call(CallLimit { rate })),
            _ => Err("names an unknown kind of limit"),
        }
    }
}

impl Cooldown {
    fn store(&self, head: &mut DefinitionHead) {
        head.pause_nanos = self.first;
        head.longest_pause_nanos = self.longest;
        head.pause_factor = self.factor;
        head.jitter = self.jitter;
        head.slow_admissions = self.slow_admissions;
        head.first_gap_nanos = self.first_gap;
        head.last_gap_nanos = self.last_gap;
    }

    fn from_stored(head: &DefinitionHead) -> Result<Self, &'static str> {
        let it = Self {
            first: head.pause_nanos,
            longest: head.longest_pause_nanos,
            factor: head.pause_factor,
            jitter: head.jitter,
            slow_admissions: head.slow_admissions,
            first_gap: head.first_gap_nanos,
            last_gap: head.last_gap_nanos,
        };
        it.check().map_err(|_| "describes an invalid cooldown")?;
        Ok(it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::definition_for_tests as definition;

    const HEAD: usize = size_of::<DefinitionHead>();

    #[test]
    fn what_is_stored_is_read_back() {
        let it = definition();
        assert_eq!(Definition::decode(&it.encode()), Ok(it.clone()));
        assert_eq!(it.difference(&it), None);
        assert_eq!(Definition::decode(&Definition::default().encode()), Ok(Definition::default()));
    }

    #[test]
    fn a_changed_or_missing_byte_is_noticed() {
        let bytes = definition().encode();
        for index in 0..bytes.len() {
            let mut spoilt = bytes.clone();
            spoilt[index] ^= 1;
            assert!(Definition::decode(&spoilt).is_err(), "byte {index}");
            assert!(Definition::decode(&bytes[..index]).is_err(), "cut at {index}");
        }
    }

    #[test]
    fn bytes_with_a_good_checksum_are_still_doubted() {
        let bytes = definition().encode();
        // Sets every field of the second limit to all ones, and makes the checksum fit.
        for (field, offset, size) in LimitDefinition::FIELDS {
            let mut spoilt = bytes.clone();
            let at = HEAD + 128 + offset;
            spoilt[at..at + size].fill(0xff);
            let (head, rest) = spoilt.split_at(HEAD);
            let head: DefinitionHead = bytemuck::pod_read_unaligned(head);
            let sum = checksum(&head, rest);
            spoilt[..8].copy_from_slice(&sum.to_ne_bytes());
            let read = Definition::decode(&spoilt);
            let is_harmless = matches!(*field, "must_report" | "reserved_a" | "reserved_b");
            assert_eq!(read.is_ok(), is_harmless, "{field}: {read:?}");
        }
    }
}
