//! Where a set can live, and how a test gets one there.

use std::ops::Deref;
use std::time::Duration;

use limitset::{
    AcquireError, Algorithm, CallLimit, Clock, Denial, LimitSet, LimitSetBuilder, LimitStats, OpenError,
    RateLimit, Report, ResourceLimit, Segment,
};

use crate::support::TempName;

/// A test, by the rule it states.
pub(crate) type Rule = (&'static str, fn(World));

/// A list of tests under their own names.
macro_rules! rules {
    ($($rule:ident),* $(,)?) => {
        pub(crate) const RULES: &[crate::worlds::Rule] = &[$((stringify!($rule), $rule)),*];
    };
}
pub(crate) use rules;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum World {
    /// Private memory.
    Thread,
    /// A segment with a name.
    Process,
    /// A segment for forked children.
    Anonymous,
}

impl World {
    pub(crate) const ALL: [Self; 3] = [Self::Thread, Self::Process, Self::Anonymous];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Thread => "in_memory",
            Self::Process => "by_name",
            Self::Anonymous => "anonymous",
        }
    }

    pub(crate) fn try_open(self, builder: &LimitSetBuilder) -> Result<Set, OpenError> {
        let name = TempName::new();
        let limits = match self {
            Self::Thread => builder.in_memory(),
            Self::Process => builder.open(&name),
            Self::Anonymous => builder.open_anonymous(),
        }?;
        Ok(Set { limits, name })
    }

    pub(crate) fn open(self, builder: &LimitSetBuilder) -> Set {
        self.try_open(builder).unwrap()
    }

    /// One rate, `capacity` units per `window`.
    pub(crate) fn rate(self, algorithm: Algorithm, capacity: u64, window: Duration) -> Set {
        self.open(&manual().limit(RateLimit::new("tokens", capacity, window).algorithm(algorithm)))
    }

    /// Ten calls and a thousand tokens per minute, and four connections.
    pub(crate) fn three_kinds(self) -> Set {
        self.open(&three_kinds())
    }
}

/// A set, and the name it has in one of the worlds.
pub(crate) struct Set {
    pub(crate) limits: LimitSet,
    pub(crate) name: TempName,
}

impl Deref for Set {
    type Target = LimitSet;

    fn deref(&self) -> &LimitSet {
        &self.limits
    }
}

impl Set {
    pub(crate) fn limit(&self, key: &str) -> LimitStats {
        self.stats().unwrap().limit(key).unwrap().clone()
    }

    pub(crate) fn advance_nanos(&self, nanos: u64) {
        self.advance(Duration::from_nanos(nanos)).unwrap();
    }

    /// What the one participant holds.
    pub(crate) fn holds(&self) -> Vec<(String, u64)> {
        self.only_participant().holds
    }

    /// The reports that the one participant owes.
    pub(crate) fn owes(&self) -> Vec<(String, u64)> {
        self.only_participant().owes_reports
    }

    fn only_participant(&self) -> limitset::ParticipantStats {
        let mut participants = self.stats().unwrap().participants;
        assert_eq!(participants.len(), 1, "{participants:?}");
        participants.remove(0)
    }
}

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// A set whose clock only tests move. Deaths are looked for once and then not again, so that nothing happens by
/// itself.
pub(crate) fn manual() -> LimitSetBuilder {
    let segment = Segment::options().slots(4).waiters(2).doorbell_slice(HOUR);
    LimitSet::builder().clock(Clock::Manual).segment(segment)
}

pub(crate) fn three_kinds() -> LimitSetBuilder {
    manual()
        .limit(CallLimit::per_minute(10))
        .limit(RateLimit::per_minute("tokens", 1_000).report(Report::Optional))
        .limit(ResourceLimit::new("connections", 4))
}

/// The algorithms that refund unused units, and those that do not.
pub(crate) fn by_refunds(refunds: bool) -> impl Iterator<Item = Algorithm> {
    Algorithm::ALL.iter().copied().filter(move |it| it.refunds() == refunds)
}

pub(crate) fn denial<T: std::fmt::Debug>(answer: Result<T, AcquireError>) -> Denial {
    match answer {
        Err(AcquireError::Denied(denial)) => denial,
        other => panic!("not a denial: {other:?}"),
    }
}

/// Pairs as [`limitset::ParticipantStats`] has them.
pub(crate) fn pairs<const N: usize>(of: [(&str, u64); N]) -> Vec<(String, u64)> {
    of.map(|(key, amount)| (key.to_owned(), amount)).to_vec()
}
