//! Which component is broken next, and in which way: by a seed.

use crate::test::scenarios::random::Random;
use std::time::Duration;

/// Whose death is mended without the loss of a connection.
pub const COMPONENTS: &[&str] = &["virtio-net", "ip", "names", "memory", "console", "supervisor"];
const WAYS: [&str; 2] = ["kill", "hang"];

/// What is done to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    pub way: &'static str,
    pub victim: &'static str,
}

impl Order {
    /// As the console takes it.
    pub fn request(self) -> String {
        format!("chaos {} {}", self.way, self.victim)
    }
}

/// Gives the orders of a seed, without end.
pub struct Schedule {
    random: Random,
    victims: &'static [&'static str],
}

impl Schedule {
    /// `seed` must not be 0.
    pub fn new(seed: u64, victims: &'static [&'static str]) -> Schedule {
        Schedule { random: Random(seed), victims }
    }
}

impl Iterator for Schedule {
    type Item = Order;

    fn next(&mut self) -> Option<Order> {
        let victim = self.victims[self.random.below(self.victims.len())];
        Some(Order { way: WAYS[self.random.below(WAYS.len())], victim })
    }
}

/// An order that was given and answered.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// From 1.
    pub number: usize,
    pub order: Order,
    /// Since the start of the load.
    pub given: Duration,
    pub answered: Duration,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Fault { number, order, given, answered } = self;
        let Order { way, victim } = order;
        let ms = answered.saturating_sub(*given).as_millis();
        write!(formatter, "fault {number} ({way} {victim} at {:.3} s, answered after {ms} ms)", given.as_secs_f64())
    }
}

/// Says after which fault a time is.
pub fn place(faults: &[Fault], at: Duration) -> String {
    let when = format!("at {:.3} s", at.as_secs_f64());
    match faults.iter().rev().find(|fault| fault.given <= at) {
        None => format!("{when}, before the first fault"),
        Some(fault) => format!("{when}, {} ms after {fault}", (at - fault.given).as_millis()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_schedule() {
        let orders = |seed| Schedule::new(seed, COMPONENTS).take(200).collect::<Vec<_>>();
        assert_eq!(orders(7), orders(7));
        assert_ne!(orders(7), orders(8));
        for (victim, way) in COMPONENTS.iter().flat_map(|victim| WAYS.map(|way| (victim, way))) {
            assert!(orders(7).contains(&Order { way, victim }), "{way} {victim}");
        }
    }

    #[test]
    fn an_only_victim_is_broken_in_each_way() {
        let orders: Vec<_> = Schedule::new(1, &["ip"]).take(20).map(Order::request).collect();
        assert!(orders.contains(&"chaos kill ip".to_owned()) && orders.contains(&"chaos hang ip".to_owned()));
        assert!(orders.iter().all(|request| request.ends_with(" ip")));
    }

    #[test]
    fn a_time_is_told_by_the_fault_before_it() {
        let order = Order { way: "kill", victim: "ip" };
        let at = Duration::from_millis;
        let faults =
            [(1, 300), (2, 700)].map(|(number, ms)| Fault { number, order, given: at(ms), answered: at(ms + 5) });
        assert_eq!(place(&faults, at(299)), "at 0.299 s, before the first fault");
        let expected = "at 0.650 s, 350 ms after fault 1 (kill ip at 0.300 s, answered after 5 ms)";
        assert_eq!(place(&faults, at(650)), expected);
        assert!(place(&faults, at(9000)).contains("fault 2 "));
    }
}
