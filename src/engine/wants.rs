//! What one request asks of the limits of a set.

use smallvec::SmallVec;

/// Amounts of limits, by number. Up to four of them need no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// Which limits are named, a bit for each.
    named: u64,
    /// Of which of them more than nothing is wanted.
    demand: u64,
    /// How much of each of those, in the order of the bits.
    amounts: SmallVec<[u64; 4]>,
}

impl Wants {
    /// Nothing at all.
    #[inline]
    pub fn none() -> Self {
        Self::default()
    }

    /// One of each of these limits.
    pub fn one_of_each(mask: u64) -> Self {
        Self { named: mask, demand: mask, amounts: SmallVec::from_elem(1, mask.count_ones() as usize) }
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
            self.amounts.insert((self.demand & (bit - 1)).count_ones() as usize, amount);
            self.demand |= bit;
        }
        true
    }

    /// What is wanted of these limits.
    pub fn only(&self, mask: u64) -> Self {
        let amounts = self.iter().filter(|(limit, _)| mask >> limit & 1 != 0).map(|(_, amount)| amount);
        Self { named: self.named & mask, demand: self.demand & mask, amounts: amounts.collect() }
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

    /// How much of a limit; none if it is not named.
    pub fn amount(&self, limit: usize) -> Option<u64> {
        let found = self.iter().find(|(index, _)| *index == limit).map(|(_, amount)| amount);
        found.or((self.named.checked_shr(u32::try_from(limit).ok()?)? & 1 != 0).then_some(0))
    }

    /// The limits of which more than nothing is wanted, and how much, in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let mut mask = self.demand;
        self.amounts.iter().map(move |amount| {
            let limit = mask.trailing_zeros() as usize;
            mask &= mask.wrapping_sub(1);
            (limit, *amount)
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
