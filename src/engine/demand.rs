//! What one request asks of the limits of a set.

/// So many amounts need no allocation, and are copied without a look at how many there are.
const FEW: usize = 4;

/// Amounts of limits, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// Which limits are named, a bit for each.
    named: u64,
    /// Of which of them more than nothing is wanted.
    demand: u64,
    /// How much of each of those, in the order of the bits, if there are only a few; 0 behind them.
    few: [u64; FEW],
    /// The same if there are more.
    more: Vec<u64>,
}

impl Wants {
    /// Nothing at all.
    #[inline]
    pub fn none() -> Self {
        Self::default()
    }

    /// One of each of these limits.
    pub fn one_of_each(mask: u64) -> Self {
        let mut wants = Self::none();
        (0..u64::BITS as usize).filter(|limit| mask >> limit & 1 != 0).for_each(|limit| {
            wants.set(limit, 1);
        });
        wants
    }

    /// Sets the amount of a limit; false if it was set before.
    pub fn set(&mut self, limit: usize, amount: u64) -> bool {
        let Some(bit) = u32::try_from(limit).ok().and_then(|limit| 1u64.checked_shl(limit)) else {
            return false;
        };
        if self.named & bit != 0 {
            return false;
        }
        self.named |= bit;
        if amount > 0 {
            let rank = (self.demand & (bit - 1)).count_ones() as usize;
            let count = self.demand.count_ones() as usize;
            self.demand |= bit;
            if count == FEW {
                self.more = std::mem::take(&mut self.few).to_vec();
            }
            if count < FEW {
                // Those behind it move up by one; the last of the few is nothing.
                self.few.iter_mut().skip(rank).fold(amount, |amount, place| std::mem::replace(place, amount));
            } else {
                self.more.insert(rank, amount);
            }
        }
        true
    }

    /// What is wanted of these limits.
    pub fn only(&self, mask: u64) -> Self {
        let mut wants = Self::none();
        self.iter().filter(|(limit, _)| mask >> limit & 1 != 0).for_each(|(limit, amount)| {
            wants.set(limit, amount);
        });
        wants.named = self.named & mask;
        wants
    }

    /// Comes to want the same as another one.
    #[inline(always)]
    pub(crate) fn copy(&mut self, other: &Self) {
        let Self { named, demand, few, more } = self;
        (*named, *demand, *few) = (other.named, other.demand, other.few);
        if !(more.is_empty() && other.more.is_empty()) {
            more.clone_from(&other.more);
        }
    }

    /// Of which limits more than nothing is wanted, a bit for each.
    #[inline]
    pub fn demand(&self) -> u64 {
        self.demand
    }

    /// Which limits are named, be it with nothing, a bit for each.
    #[inline]
    pub fn named(&self) -> u64 {
        self.named
    }

    /// The limit of which more than nothing is wanted, and how much, if there is only one.
    #[inline(always)]
    pub(crate) fn only_one(&self) -> Option<(usize, u64)> {
        let [amount, ..] = self.few;
        let is_one = self.demand & self.demand.wrapping_sub(1) == 0 && self.demand != 0;
        is_one.then(|| (self.demand.trailing_zeros() as usize, amount))
    }

    /// How much of a limit; none if it is not named.
    pub fn amount(&self, limit: usize) -> Option<u64> {
        let found = self.iter().find(|(index, _)| *index == limit).map(|(_, amount)| amount);
        found.or((self.named.checked_shr(u32::try_from(limit).ok()?)? & 1 != 0).then_some(0))
    }

    /// The limits of which more than nothing is wanted, and how much, in order.
    #[inline(always)]
    pub fn iter(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let amounts = if self.more.is_empty() { self.few.as_slice() } else { self.more.as_slice() };
        let (mut mask, mut amounts) = (self.demand, amounts.iter());
        std::iter::from_fn(move || {
            if mask == 0 {
                return None;
            }
            let limit = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            amounts.next().map(|amount| (limit, *amount))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_stay_with_their_limits_whatever_the_order() {
        let mut wants = Wants::one_of_each(0b1010);
        assert!(wants.set(63, 9) && wants.set(0, 7) && wants.set(2, 5));
        assert!(!wants.set(1, 3), "set already");
        assert!(!wants.set(64, 3), "there is no such limit");
        assert_eq!(wants.iter().collect::<Vec<_>>(), [(0, 7), (1, 1), (2, 5), (3, 1), (63, 9)]);
        assert_eq!((wants.amount(2), wants.amount(4)), (Some(5), None));
    }

    #[test]
    fn any_number_of_amounts_in_any_order_comes_out_in_order() {
        let mut random = 7u64;
        for many in 0..=64usize {
            let mut limits: Vec<usize> = (0..64).collect();
            for place in (1..64).rev() {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                limits.swap(place, (random >> 33) as usize % (place + 1));
            }
            let mut chosen = limits[..many].to_vec();
            let mut wants = Wants::none();
            assert!(chosen.iter().all(|limit| wants.set(*limit, 100 + *limit as u64)));
            chosen.sort_unstable();
            let expected: Vec<_> = chosen.iter().map(|limit| (*limit, 100 + *limit as u64)).collect();
            assert_eq!(wants.iter().collect::<Vec<_>>(), expected);
            let mut copy = Wants::one_of_each(u64::MAX);
            copy.copy(&wants);
            assert_eq!(copy, wants);
            assert_eq!(wants.only(u64::MAX), wants);
        }
    }

    #[test]
    fn what_is_named_with_nothing_is_named_and_costs_no_turn() {
        let mut wants = Wants::one_of_each(0b1000);
        assert!(wants.set(0, 0) && wants.set(1, 2) && !wants.set(0, 5));
        assert_eq!((wants.named(), wants.demand()), (0b1011, 0b1010));
        assert_eq!(wants.iter().collect::<Vec<_>>(), [(1, 2), (3, 1)]);
        assert_eq!((wants.amount(0), wants.amount(2)), (Some(0), None));
        let rest = wants.only(0b1001);
        assert_eq!((rest.named(), rest.iter().collect::<Vec<_>>()), (0b1001, vec![(3, 1)]));
    }
}
