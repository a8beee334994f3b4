//! What one request asks of the limits of a set.

use smallvec::SmallVec;

/// Amounts of limits, by number. Up to four of them need no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// Which limits, a bit for each.
    mask: u64,
    /// How much of each, in the order of the bits.
    amounts: SmallVec<[u64; 4]>,
}

impl Wants {
    /// Nothing at all.
    pub fn none() -> Self {
        Self::default()
    }

    /// One of each of these limits.
    pub fn one_of_each(mask: u64) -> Self {
        Self { mask, amounts: SmallVec::from_elem(1, mask.count_ones() as usize) }
    }

    /// Sets the amount of a limit; false if it was set before.
    pub fn set(&mut self, limit: usize, amount: u64) -> bool {
        let Some(bit) = u32::try_from(limit).ok().and_then(|limit| 1u64.checked_shl(limit)) else {
            return false;
        };
        let place = (self.mask & (bit - 1)).count_ones() as usize;
        if self.mask & bit != 0 {
            return false;
        }
        self.mask |= bit;
        self.amounts.insert(place, amount);
        true
    }

    /// What is wanted of these limits.
    pub fn only(&self, mask: u64) -> Self {
        let mut wants = Self::none();
        for (limit, amount) in self.iter().filter(|(limit, _)| mask >> limit & 1 != 0) {
            wants.set(limit, amount);
        }
        wants
    }

    /// Of which limits more than nothing is wanted, a bit for each.
    pub fn demand(&self) -> u64 {
        self.iter().filter(|(_, amount)| *amount > 0).map(|(limit, _)| 1 << limit).sum()
    }

    /// Which limits, a bit for each.
    pub fn mask(&self) -> u64 {
        self.mask
    }

    /// How much of a limit; none if it is left alone.
    pub fn amount(&self, limit: usize) -> Option<u64> {
        self.iter().find(|(index, _)| *index == limit).map(|(_, amount)| amount)
    }

    /// Limits and amounts, in order.
    pub fn iter(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let mut mask = self.mask;
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
}
