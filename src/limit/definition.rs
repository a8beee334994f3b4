//! What a set was declared as: its limits and its config, and how a segment keeps them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bytemuck::Zeroable;

use super::{
    Algorithm, CallLimit, Cooldown, GivingUp, Limit, MAX_KEY_BYTES, Rate, RateLimit, Report, ResourceLimit,
    validate,
};
use crate::layout::Fnv;
use crate::layout::definition::{DefinitionHead, LimitDefinition, MAX_CONFIG_BYTES};

const RATE: u32 = 1;
const CALL: u32 = 2;
const RESOURCE: u32 = 3;

/// The declared part of a set. Never changes; numbers that are changed live are kept beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Definition {
    pub(crate) limits: Vec<Limit>,
    pub(crate) config: BTreeMap<String, String>,
    pub(crate) order: Order,
    pub(crate) cooldown: Cooldown,
    /// When the work queue gives up on an item, if there is one.
    pub(crate) giving_up: GivingUp,
}

/// Who goes first when there is not enough for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// Whoever came first, among those who want the same limits: nobody starves, and newcomers queue up. A newcomer need not
    /// if every limit that it wants has enough left afterwards for all who wait for it: then it delays nobody.
    #[default]
    Arrival,
    /// Whoever fits: small requests pass large ones, and newcomers pass those who wait. Large requests may starve.
    Any,
}

impl Order {
    const fn number(self) -> u32 {
        match self {
            Self::Arrival => 0,
            Self::Any => 1,
        }
    }
}

/// How two definitions differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) found: String,
    pub(crate) expected: String,
    pub(crate) what: Differs,
}

/// What differs between two definitions, the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Differs {
    /// Keys, kinds, algorithms, sub-windows, reports: never changed live.
    Limits,
    /// The config map, the cooldown, or when the work queue gives up.
    Config,
    /// Numbers only, which can be changed live.
    Numbers,
}

impl Definition {
    /// Words needed for window cells, over all limits.
    pub(crate) fn cells(&self) -> u32 {
        self.limits.iter().filter_map(|limit| limit.rule(0)).map(|rule| rule.cells()).sum()
    }

    /// Bytes of the config map in a segment.
    pub(crate) fn config_bytes(&self) -> usize {
        self.config.iter().map(|(key, value)| 8 + key.len() + value.len()).sum()
    }

    /// The bytes of the definition region.
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

    /// Reads a copy of a definition region.
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
        validate(&limits).map_err(|_| "describes a limit that cannot be")?;
        let order = [Order::Arrival, Order::Any].into_iter().find(|order| order.number() == head.order);
        let order = order.ok_or("names an unknown order")?;
        let cooldown = Cooldown::from_stored(&head)?;
        let giving_up = GivingUp { attempts: head.most_attempts, rate_limits: head.most_rate_limits };
        giving_up.check().map_err(|_| "describes a queue that cannot be")?;
        Ok(Self { limits, config: decode_config(config, head.config_entries)?, order, cooldown, giving_up })
    }

    /// The first difference between this definition, found in a segment, and the one asked for. The order of
    /// limits is none.
    pub(crate) fn difference(&self, expected: &Self) -> Option<Difference> {
        let differs = |found: &dyn fmt::Display, expected: &dyn fmt::Display, what| {
            Some(Difference { found: found.to_string(), expected: expected.to_string(), what })
        };
        let find = |limits: &[Limit], key: &str| limits.iter().find(|it| it.name() == key).cloned();
        for limit in &expected.limits {
            let Some(found) = find(&self.limits, limit.name()) else {
                return differs(&format_args!("no limit {:?}", limit.name()), limit, Differs::Limits);
            };
            if !found.is_same_kind_as(limit) {
                return differs(&found, limit, Differs::Limits);
            }
        }
        if let Some(found) = self.limits.iter().find(|it| find(&expected.limits, it.name()).is_none()) {
            return differs(found, &format_args!("no limit {:?}", found.name()), Differs::Limits);
        }
        if self.order != expected.order {
            let text = |it: &Self| format!("order {:?}", it.order);
            return differs(&text(self), &text(expected), Differs::Limits);
        }
        if self.config != expected.config {
            return differs(&Config(&self.config), &Config(&expected.config), Differs::Config);
        }
        if self.cooldown != expected.cooldown {
            return differs(&self.cooldown, &expected.cooldown, Differs::Config);
        }
        if self.giving_up != expected.giving_up {
            return differs(&self.giving_up, &expected.giving_up, Differs::Config);
        }
        let mut pairs = expected.limits.iter().filter_map(|it| Some((find(&self.limits, it.name())?, it)));
        let (found, limit) = pairs
            .find(|(found, limit)| found.rule(0) != limit.rule(0) || found.capacity() != limit.capacity())?;
        differs(&found, limit, Differs::Numbers)
    }
}

/// A config map, for messages.
struct Config<'a>(&'a BTreeMap<String, String>);

impl fmt::Display for Config<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "config {:?}", self.0)
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

    /// Whether this limit differs from another of the same key in numbers only.
    pub(crate) fn is_same_kind_as(&self, other: &Self) -> bool {
        let shape = |limit: &Self| limit.rule(0).map(|rule| (rule.algorithm(), rule.cells()));
        std::mem::discriminant(self) == std::mem::discriminant(other)
            && shape(self) == shape(other)
            && self.must_report() == other.must_report()
    }
}

/// `"tokens": 200000 per 60s by gcra, at most 50000 at once`.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, capacity) = (self.name(), self.capacity());
        let Some(rate) = self.rate() else {
            return write!(f, "resource {name:?}: {capacity}");
        };
        let kind = if matches!(self, Self::Call(_)) { "calls" } else { "rate" };
        write!(f, "{kind} {name:?}: {capacity} per {:?} by {}", rate.window, rate.algorithm)?;
        if let Some(burst) = rate.burst {
            write!(f, ", at most {burst} at once")?;
        }
        if let Some(resolution) = rate.resolution {
            write!(f, ", {resolution} sub-windows")?;
        }
        if matches!(self, Self::Rate(it) if it.report == Report::Optional) {
            f.write_str(", report optional")?;
        }
        Ok(())
    }
}

/// Whether a config map fits a segment.
pub(crate) fn config_fits(definition: &Definition) -> Result<(), super::BadLimit> {
    let (found, most) = (definition.config_bytes(), MAX_CONFIG_BYTES as usize);
    if found > most { Err(super::BadLimit::ConfigTooLarge { found, most }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(3);
    const HEAD: usize = size_of::<DefinitionHead>();

    fn definition() -> Definition {
        Definition {
            limits: vec![
                CallLimit::per_minute(500).into(),
                RateLimit::per_hour("tokens", 9).algorithm(Algorithm::Gcra).burst(3).into(),
                RateLimit::per_day("rows", 7)
                    .algorithm(Algorithm::SlidingWindow)
                    .resolution(24)
                    .report(Report::Optional)
                    .into(),
                ResourceLimit::new("connections", 8).into(),
            ],
            config: [("region", "eu"), ("", "empty key"), ("z", "")]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into(),
            order: Order::Any,
            cooldown: Cooldown::default().factor(1.5).jitter(0.0).slow_start(
                3,
                Duration::from_secs(2),
                SHORT,
            ),
            giving_up: GivingUp { attempts: 7, rate_limits: 1 },
        }
    }

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
        // Every field of the second limit, set to all ones, with the checksum made to fit.
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

    #[test]
    fn the_first_difference_is_named_and_numbers_are_told_apart() {
        let ours = definition();
        let mut theirs = definition();
        theirs.limits.reverse();
        assert_eq!(theirs.difference(&ours), None, "order is no difference");
        theirs.limits[3] = CallLimit::per_minute(400).into();
        let difference = theirs.difference(&ours).unwrap();
        assert_eq!(difference.what, Differs::Numbers);
        assert!(difference.found.contains("400 per 60s") && difference.expected.contains("500 per 60s"));
        theirs.limits[0] = ResourceLimit::new("conections", 8).into();
        let difference = theirs.difference(&ours).unwrap();
        assert_eq!(
            (difference.what, difference.found.as_str()),
            (Differs::Limits, "no limit \"connections\"")
        );
        let mut theirs = definition();
        theirs.config.clear();
        assert_eq!(theirs.difference(&ours).unwrap().what, Differs::Config);
        let mut theirs = definition();
        theirs.cooldown = Cooldown::default();
        let difference = theirs.difference(&ours).unwrap();
        assert_eq!(difference.what, Differs::Config);
        assert!(difference.found.contains("times 2,") && difference.expected.contains("times 1.5,"));
        let mut theirs = definition();
        theirs.giving_up.attempts = 3;
        let difference = theirs.difference(&ours).unwrap();
        assert!(difference.found.contains("3 attempts") && difference.expected.contains("7 attempts"));
        let mut theirs = definition();
        theirs.limits[3] = ResourceLimit::new("connections", 9).into();
        assert_eq!(theirs.difference(&ours).unwrap().what, Differs::Numbers);
    }
}
