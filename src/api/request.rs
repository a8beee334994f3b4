//! What a caller asks a set for.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use smallvec::SmallVec;
use thiserror::Error;

use crate::code::Code;
use crate::engine::Wants;
use crate::limit::Limit;
use crate::shared::keys::Keys;

/// Amounts by key, and a label. Usually made by [`From`], right in the call:
///
/// ```
/// use std::collections::HashMap;
/// use limitset::{CallLimit, LimitSet, RateLimit, Report, Request, ResourceLimit};
///
/// let limits = LimitSet::builder()
///     .limit(CallLimit::per_minute(500))
///     .limit(RateLimit::per_minute("tokens", 200_000).report(Report::Optional))
///     .limit(ResourceLimit::new("connections", 8))
///     .in_memory()?;
///
/// let a = limits.try_acquire([("tokens", 1_500)])?;             // and one call, one connection
/// let b = limits.try_acquire(&HashMap::from([("tokens", 10)]))?;
/// let c = limits.try_acquire([("tokens", 0), ("call_count", 3), ("connections", 0)])?;
/// let d = limits.try_acquire(Request::from([("tokens", 10)]).label("chat"))?;
/// assert_eq!(limits.stats()?.limit("call_count").unwrap().in_use, 6);
///
/// // For hot paths, keys are looked up once.
/// let usual = limits.request().amount("tokens", 1_500).label("chat").build()?;
/// let e = limits.try_acquire(&usual)?;
/// # drop((a, b, c, d, e));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Asking for nothing, with `()`, means every limit: one of each call and resource limit. Each rate has to be
/// named then, so it is an error where there are any. Asking for something means the limits named, and one of each
/// call and resource limit that is not. An amount of 0 leaves a limit alone.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    asked: Asked<'a>,
    label: Option<&'a str>,
}

#[derive(Clone, Debug)]
enum Asked<'a> {
    ByKey(SmallVec<[(&'a str, u64); 4]>),
    Resolved(&'a ResolvedRequest),
}

impl<'a> Request<'a> {
    /// Names the request in events.
    #[must_use]
    pub fn label(mut self, label: &'a str) -> Self {
        self.label = Some(label);
        self
    }

    /// Its name in events.
    pub fn name(&self) -> Option<&str> {
        match (&self.asked, self.label) {
            (Asked::Resolved(it), None) => it.label.as_deref(),
            (_, label) => label,
        }
    }

    /// What it is, if its keys were looked up before and it has no label of its own.
    #[inline]
    pub(crate) fn resolved(&self) -> Option<&'a ResolvedRequest> {
        match (&self.asked, self.label) {
            (Asked::Resolved(it), None) => Some(it),
            _ => None,
        }
    }

    fn by_key(pairs: impl Iterator<Item = (&'a str, u64)>) -> Self {
        Self { asked: Asked::ByKey(pairs.collect()), label: None }
    }
}

impl From<()> for Request<'_> {
    fn from((): ()) -> Self {
        Self::by_key(std::iter::empty())
    }
}

impl<'a, const N: usize> From<[(&'a str, u64); N]> for Request<'a> {
    fn from(amounts: [(&'a str, u64); N]) -> Self {
        Self::by_key(amounts.into_iter())
    }
}

impl<'a, const N: usize> From<&'a [(&'a str, u64); N]> for Request<'a> {
    fn from(amounts: &'a [(&'a str, u64); N]) -> Self {
        Self::by_key(amounts.iter().copied())
    }
}

impl<'a> From<&'a [(&'a str, u64)]> for Request<'a> {
    fn from(amounts: &'a [(&'a str, u64)]) -> Self {
        Self::by_key(amounts.iter().copied())
    }
}

impl<'a, K: Borrow<str> + Eq + Hash, S: BuildHasher> From<&'a HashMap<K, u64, S>> for Request<'a> {
    fn from(amounts: &'a HashMap<K, u64, S>) -> Self {
        Self::by_key(amounts.iter().map(|(key, amount)| (key.borrow(), *amount)))
    }
}

impl<'a> From<&'a ResolvedRequest> for Request<'a> {
    #[inline]
    fn from(resolved: &'a ResolvedRequest) -> Self {
        Self { asked: Asked::Resolved(resolved), label: None }
    }
}

/// A request whose keys were looked up beforehand: using it compares no strings, and allocates nothing for up to four
/// limits.
///
/// Made by [`LimitSet::request`](crate::LimitSet::request); good for every set with the same limits.
#[derive(Clone, Debug)]
pub struct ResolvedRequest {
    wants: Wants,
    /// Which limits were named; the others came along.
    named: u64,
    label: Option<Arc<str>>,
    digest: u64,
}

impl ResolvedRequest {
    /// Its name in events.
    #[inline]
    pub(crate) fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }
}

/// Builds a [`ResolvedRequest`].
#[derive(Clone, Debug)]
#[must_use]
pub struct RequestBuilder<'a> {
    keys: &'a Keys,
    amounts: Vec<(String, u64)>,
    label: Option<Arc<str>>,
}

impl<'a> RequestBuilder<'a> {
    pub(crate) fn new(keys: &'a Keys) -> Self {
        Self { keys, amounts: Vec::new(), label: None }
    }

    /// Asks for an amount of a limit.
    pub fn amount(mut self, key: impl Into<String>, amount: u64) -> Self {
        self.amounts.push((key.into(), amount));
        self
    }

    /// Names the request in events.
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Looks the keys up.
    ///
    /// # Errors
    ///
    /// [`BadRequest`] if a key is unknown or named twice, or a rate is not named in an otherwise empty request.
    pub fn build(self) -> Result<ResolvedRequest, BadRequest> {
        let amounts = self.amounts.iter().map(|(key, amount)| (key.as_str(), *amount));
        let named = self.keys.named(amounts.clone())?.named();
        let wants = self.keys.resolve(amounts)?;
        Ok(ResolvedRequest { wants, named, label: self.label, digest: self.keys.table.digest() })
    }
}

/// A request that makes no sense to a set.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name every field")]
pub enum BadRequest {
    /// The set has no such limit.
    #[error("there is no limit {key:?} in this set; it has {known}")]
    UnknownKey { key: String, known: String },
    /// A limit is named twice.
    #[error("{key:?} is named twice in one request: add the amounts up")]
    KeyTwice { key: String },
    /// Nothing is named, and there is a rate whose amount cannot be guessed.
    #[error(
        "the request names nothing, and how much of rate {key:?} it needs cannot be guessed: name it, with 0 if none"
    )]
    Unnamed { key: String },
    /// It was resolved for a set with other limits.
    #[error(
        "the request was resolved for a set with other limits: build it from this set, or one that is the same"
    )]
    OtherLimits,
    /// A permit was to be paid.
    #[error("{key:?} is held, not paid: acquire it")]
    Permit { key: String },
    /// More was asked for without naming anything.
    #[error("a request for more has to name something")]
    NothingMore,
}

impl BadRequest {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::UnknownKey { .. }
            | Self::KeyTwice { .. }
            | Self::Unnamed { .. }
            | Self::OtherLimits
            | Self::Permit { .. }
            | Self::NothingMore => Code::BadRequest,
        }
    }
}

impl Keys {
    /// The number of the limit with this name.
    pub(crate) fn limit(&self, key: &str) -> Result<usize, BadRequest> {
        let found = self.find(key);
        found.ok_or_else(|| BadRequest::UnknownKey { key: key.to_owned(), known: self.listed() })
    }

    /// What a request wants; `scratch` is where it is put unless it was resolved before.
    #[inline]
    pub(crate) fn wants<'r>(
        &self,
        request: &'r Request<'_>,
        scratch: &'r mut Wants,
    ) -> Result<&'r Wants, BadRequest> {
        match &request.asked {
            Asked::Resolved(it) if it.digest == self.table.digest() => Ok(&it.wants),
            Asked::Resolved(_) => Err(BadRequest::OtherLimits),
            Asked::ByKey(amounts) => {
                *scratch = self.resolve(amounts.iter().copied())?;
                Ok(scratch)
            }
        }
    }

    /// Exactly the limits that a request names, without the automatic ones.
    pub(crate) fn named_only(&self, request: &Request<'_>) -> Result<Wants, BadRequest> {
        let wants = match &request.asked {
            Asked::Resolved(it) if it.digest == self.table.digest() => it.wants.only(it.named),
            Asked::Resolved(_) => return Err(BadRequest::OtherLimits),
            Asked::ByKey(amounts) => self.named(amounts.iter().copied())?,
        };
        if wants.named() == 0 { Err(BadRequest::NothingMore) } else { Ok(wants) }
    }

    /// What a resolved request wants, if that is of rates alone, and of none that keeps cells; none if not, or if it is
    /// not for these limits.
    #[inline(always)]
    pub(crate) fn plain_rates<'r>(&self, request: &'r ResolvedRequest) -> Option<&'r Wants> {
        let others = !self.table.plain_rates();
        (request.digest == self.table.digest() && request.wants.named() & others == 0)
            .then_some(&request.wants)
    }

    /// What a request wants of rates alone; it must not name a permit. `scratch` is where it is put unless it was resolved
    /// before, for a set without permits.
    pub(crate) fn payable<'r>(
        &self,
        request: &'r Request<'_>,
        scratch: &'r mut Wants,
    ) -> Result<&'r Wants, BadRequest> {
        let permits = self.table.all() & !self.table.rates();
        let named = match &request.asked {
            Asked::Resolved(it) if it.digest != self.table.digest() => return Err(BadRequest::OtherLimits),
            Asked::Resolved(it) if it.wants.named() & permits == 0 => return Ok(&it.wants),
            Asked::Resolved(it) => it.named,
            Asked::ByKey(amounts) => self.named(amounts.iter().copied())?.named(),
        };
        let mut all = Wants::none();
        let wants = self.wants(request, &mut all)?;
        let held = named & permits & wants.demand();
        if held != 0 {
            return Err(BadRequest::Permit { key: self.name(held.trailing_zeros() as usize).to_owned() });
        }
        *scratch = wants.only(self.table.rates());
        Ok(scratch)
    }

    fn named<'k>(&self, amounts: impl Iterator<Item = (&'k str, u64)>) -> Result<Wants, BadRequest> {
        let mut wants = Wants::none();
        for (key, amount) in amounts {
            if !wants.set(self.limit(key)?, amount) {
                return Err(BadRequest::KeyTwice { key: key.to_owned() });
            }
        }
        Ok(wants)
    }

    fn resolve<'k>(&self, amounts: impl Iterator<Item = (&'k str, u64)>) -> Result<Wants, BadRequest> {
        let mut wants = self.named(amounts)?;
        if wants.named() == 0
            && let Some(rate) = self.limits.iter().find(|limit| matches!(limit, Limit::Rate(_)))
        {
            return Err(BadRequest::Unnamed { key: rate.name().to_owned() });
        }
        let mut unnamed = self.table.automatic() & !wants.named();
        while unnamed != 0 {
            wants.set(unnamed.trailing_zeros() as usize, 1);
            unnamed &= unnamed - 1;
        }
        Ok(wants)
    }
}
