//! Defects of the world that a victim parks an item in, or that a survivor recovers in: each of them must be seen, or the
//! other tests here would prove nothing.

use limitset::Clock;
use limitset::core::NEVER;
use limitset::engine::{Charge, Engine, Report, Taken};

use crate::acts::Act;
use crate::mutant::{self, Class, Effect, Mutant, Mutation};
use crate::stage::{Ask, NO_SLICE, builder};
use crate::stepped::Tally;
use crate::support::{self, Random};
use crate::{Scene, new_twin, victim};

/// Defects that a victim's death shows.
const OF_THE_VICTIM: [&str; 5] =
    ["no_journal", "length_after_word", "stale_old_value", "commit_before_apply", ENTRY_DROPPED.name];
const ENTRY_DROPPED: Mutation = Mutation {
    name: "entry_dropped",
    breaks: "the thirteenth word of a transaction, which is one of the item or its list, changes before its entry counts",
    effect: Effect::LoseLength(26),
};
/// Defects of whoever recovers.
const OF_THE_SURVIVOR: [&str; 3] = ["skip_recovery", "undo_restores_nothing", NO_SECOND_RING.name];
const NO_SECOND_RING: Mutation = Mutation {
    name: "no_second_ring",
    breaks: "whoever takes the lock from the dead does not ring a doorbell for them",
    effect: Effect::RingNothing(Class::Bell),
};

fn defect(name: &str) -> Mutation {
    let own = [ENTRY_DROPPED, NO_SECOND_RING];
    mutant::named(name).or(own.into_iter().find(|own| own.name == name)).unwrap()
}

/// Without a defect nothing is torn; with each of these, something is.
pub(crate) fn mutants_are_caught() {
    victim::stay_on_one_cpu();
    let mut random = Random::new(5);
    let none = mutant::CONTROL.name;
    let of_victims = OF_THE_VICTIM.into_iter().map(|name| (name, none));
    let of_survivors = OF_THE_SURVIVOR.into_iter().map(|name| (none, name));
    for (victim, survivor) in std::iter::once((none, none)).chain(of_victims).chain(of_survivors) {
        let twin = new_twin();
        let role = ("mutated", &[victim][..]);
        let Some(scene) = Scene::new(&twin, Act::Park, role, &mut random, None) else {
            println!("SKIPPED mutants of parking: this machine does not allow tracing");
            return;
        };
        let mut tally = Tally::default();
        let (instructions, _) = scene.step_through(&mut tally, |side, before, _, tally| {
            side.recover(before, tally, Some(defect(survivor)))
        });
        let (name, whose) = if victim == none { (survivor, "a survivor") } else { (victim, "the dying") };
        if name == none {
            tally.assert_clean();
            continue;
        }
        assert!(tally.torn > 0, "{name} of {whose} was not caught: {tally:?}");
        let what = format!("`{name}` of {whose} in {}: {}", Act::Park.name(), defect(name).breaks);
        support::proof(
            "mutants",
            &what,
            &format!("{} findings over {instructions} instructions", tally.torn),
        );
    }
}

/// Parks an item as a queue does it, in an environment with a defect.
pub(crate) fn mutated_role(arguments: &[String]) {
    let set = builder(NO_SLICE).attach(&arguments[0]).unwrap();
    let wants = Ask(1, 7, 1).wants();
    let me = set.segment().participant().unwrap();
    let parts = set.parts().unwrap();
    let (lease, report) = {
        let mut guard = parts.lock(me, NEVER).unwrap();
        let now = parts.now(&guard, 0).unwrap();
        let Taken::Item(lease) = parts.take_item(&mut guard, &Clock::Manual, now).unwrap() else {
            panic!("there is an item")
        };
        parts.take(&mut guard, &wants, u64::MAX, now).unwrap().unwrap();
        let admitted = parts.admitted(&guard, None).unwrap();
        (lease, Report { admitted: Some(admitted), retry_after: 0 })
    };
    let charges: Vec<_> = Charge::of(&wants, u64::MAX, parts.table, u64::MAX).collect();
    let mutant = Mutant::new(parts.block, &[], defect(&arguments[3]));
    let engine = Engine::new(mutant.block(), parts.waiters.with_env(), parts.table);
    let engine = engine.with_items(parts.items.with_env());
    victim::stop_here();
    let mut guard = engine.lock(me, NEVER).unwrap();
    let now = engine.now(&guard, 0).unwrap();
    engine.park(&mut guard, &lease, &charges, report, now).unwrap().unwrap();
    guard.unlock().unwrap();
    victim::leave();
}
