//! At once: asking and giving back without a guard, as nearly everybody does nearly always, against others who do the
//! same, wait, or die.

use super::queue::permits;
use crate::mutant::Mutation;
use crate::set::{Answer, beside};
use crate::sweep::Model;
use crate::world::Sleep;

/// Invariant: of one permit, never more than one is out; whoever is killed at whatever operation, nothing is half done and
/// the permit comes back, once.
pub fn at_once_balances(mutation: Mutation) {
    let model = Model::exhaustive("at_once_balances", 2, "1, 2, 3", mutation).bounded(2);
    model.sweep(&[1, 2], |scenario| {
        let set = permits(scenario, 1, 3, Sleep::UntilNews);
        let other = beside(&set, |set| {
            set.live(2, 0, |life| {
                // And keeps it: what is returned once too often would be taken from it.
                if !life.ask_at_once(1) {
                    assert_eq!(life.acquire(1), Answer::Granted);
                }
            })
        });
        set.live(1, 1, |life| life.give_at_once());
        other.join().unwrap();
        set.check();
    });
}

/// Invariant: who waits for a permit gets it, though its holder gives it back without a look at more than whether somebody
/// waits; whoever is killed.
pub fn at_once_passes_nobody_over(mutation: Mutation) {
    let model = Model::exhaustive("at_once_passes_nobody_over", 2, "2, 3, 7", mutation).bounded(2);
    model.sweep(&[1, 2], |scenario| {
        let set = permits(scenario, 1, 3, Sleep::UntilNews);
        let waiter = beside(&set, |set| {
            set.live(2, 0, |life| {
                assert_eq!(life.acquire(1), Answer::Granted);
                life.give_at_once();
            })
        });
        set.live(1, 1, |life| life.give_at_once());
        waiter.join().unwrap();
        set.check();
    });
}
