//! The declaration of a set: its limits and its config, and how two declarations differ.

use std::collections::BTreeMap;
use std::fmt;

use super::{Cooldown, GivingUp, Limit, Report};

/// The largest config map, in bytes as encoded in a segment.
pub(crate) const MAX_CONFIG_BYTES: u32 = 1 << 16;

/// The declaration of a set. It never changes; parameters that were changed live are kept beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Definition {
    pub(crate) limits: Vec<Limit>,
    pub(crate) config: BTreeMap<String, String>,
    pub(crate) order: Order,
    pub(crate) cooldown: Cooldown,
    /// When the work queue gives up on an item, if the set has a queue.
    pub(crate) giving_up: GivingUp,
}

/// The order in which waiters are granted their requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// Whoever came first, among those who want the same limits: nobody starves, and newcomers queue up. A newcomer need not
    /// if every limit that it wants has enough left afterwards for all who wait for it: then it delays nobody.
    #[default]
    Arrival,
    /// Any request that fits. Small requests pass large ones, and new requests pass waiters. Large requests
    /// may starve.
    Any,
}

impl Order {
    /// Returns the order's number in a segment. Numbers never change.
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Arrival => 0,
            Self::Any => 1,
        }
    }
}

/// A difference between two definitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) found: String,
    pub(crate) expected: String,
    pub(crate) what: Differs,
}

/// The kind of difference between two definitions, the most severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Differs {
    /// Keys, kinds, algorithms, sub-windows or reports, which never change live.
    Limits,
    /// The config map, the cooldown, or the queue's number of attempts.
    Config,
    /// Parameters only, which can be changed live.
    Numbers,
}

impl Definition {
    /// The number of words needed for the window cells of all limits.
    pub(crate) fn cells(&self) -> u32 {
        self.limits.iter().filter_map(|limit| limit.rule(0)).map(|rule| rule.cells()).sum()
    }

    /// The bytes of the config map in a segment.
    pub(crate) fn config_bytes(&self) -> usize {
        self.config.iter().map(|(key, value)| 8 + key.len() + value.len()).sum()
    }

    /// Returns the first difference between this definition, found in a segment, and the expected one. The
    /// order of limits does not count.
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

/// Formats a config map for messages.
struct Config<'a>(&'a BTreeMap<String, String>);

impl fmt::Display for Config<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "config {:?}", self.0)
    }
}

impl Limit {
    /// Returns whether this limit differs from another with the same key in parameters only.
    pub(crate) fn is_same_kind_as(&self, other: &Self) -> bool {
        let shape = |limit: &Self| limit.rule(0).map(|rule| (rule.algorithm(), rule.cells()));
        std::mem::discriminant(self) == std::mem::discriminant(other)
            && shape(self) == shape(other)
            && self.must_report() == other.must_report()
    }
}

/// Formats a limit: `"tokens": 200000 per 60s by gcra, at most 50000 at once`.
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

/// Checks that a config map fits a segment.
pub(crate) fn config_fits(definition: &Definition) -> Result<(), super::BadLimit> {
    let (found, most) = (definition.config_bytes(), MAX_CONFIG_BYTES as usize);
    if found > most { Err(super::BadLimit::ConfigTooLarge { found, most }) } else { Ok(()) }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limit::{Algorithm, CallLimit, RateLimit, ResourceLimit};

    const SHORT: Duration = Duration::from_millis(3);

    pub(crate) fn definition() -> Definition {
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
    fn the_first_difference_is_named_and_numbers_are_told_apart() {
        let ours = definition();
        let mut theirs = definition();
        theirs.limits.reverse();
        assert_eq!(theirs.difference(&ours), None, "the order of limits does not count");
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
