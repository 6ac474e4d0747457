//! Programs of several cores: they end as one. Decisions only: who is to be ended, who is told.
//!
//! Invariants: of each program that was entered the end is told once, when none of its domains is
//! left; a program that is undone is told to nobody.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use contracts::spawn::{Death, DomainId};

struct Program<C> {
    generation: u64,
    /// Who is told of its end.
    client: Option<C>,
    /// By core.
    dispatchers: Vec<DomainId>,
    living: BTreeSet<DomainId>,
    /// The death that ends it.
    first: Option<Death>,
}

/// What follows from the death of a domain.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome<C> {
    /// Nothing: its program ends already, or it is of none.
    Nothing,
    /// Its program ends: these are to be ended too.
    EndOthers(Vec<DomainId>),
    /// The last is gone.
    Gone {
        /// Of the program.
        name: String,
        /// Which it was.
        generation: u64,
        /// To be told; nobody if it was undone.
        client: Option<C>,
        /// The first death.
        death: Death,
    },
}

/// All programs that have a domain.
pub struct Programs<C> {
    programs: BTreeMap<String, Program<C>>,
}

impl<C> Programs<C> {
    /// None yet.
    pub fn new() -> Programs<C> {
        Programs { programs: BTreeMap::new() }
    }

    /// Has it any domain?
    pub fn is_there(&self, name: &str) -> bool {
        self.programs.contains_key(name)
    }

    /// Does it run in that generation, with none dead?
    pub fn lives(&self, name: &str, generation: u64) -> bool {
        self.programs.get(name).is_some_and(|program| program.generation == generation && program.first.is_none())
    }

    /// All its dispatchers were made. The name has none.
    pub fn made(&mut self, name: &str, generation: u64, client: C, dispatchers: Vec<DomainId>) {
        let living = dispatchers.iter().copied().collect();
        let program = Program { generation, client: Some(client), dispatchers, living, first: None };
        self.programs.insert(name.into(), program);
    }

    /// A domain could not be made, or not be started: those that were made, and have not run yet,
    /// are ended by the caller, and nobody is told.
    pub fn undone(&mut self, name: &str, made: &[DomainId]) {
        if let Some(program) = self.programs.get_mut(name) {
            program.client = None;
        } else if !made.is_empty() {
            let living = made.iter().copied().collect();
            let program = Program { generation: 0, client: None, dispatchers: Vec::new(), living, first: None };
            self.programs.insert(name.into(), program);
        }
    }

    /// Its dispatchers, by core.
    pub fn dispatchers(&self, name: &str, generation: u64) -> Option<&[DomainId]> {
        let program = self.programs.get(name).filter(|program| program.generation == generation)?;
        Some(&program.dispatchers)
    }

    /// All domains that live, as far as is known.
    pub fn living(&self) -> Vec<DomainId> {
        self.programs.values().flat_map(|program| program.living.iter().copied()).collect()
    }

    /// A domain died.
    pub fn died(&mut self, death: Death) -> Outcome<C> {
        let found = self.programs.iter_mut().find(|(_, program)| program.living.contains(&death.domain));
        let Some((name, program)) = found else { return Outcome::Nothing };
        program.living.remove(&death.domain);
        let is_first = program.first.is_none();
        let first = *program.first.get_or_insert(death);
        if !program.living.is_empty() {
            // Those of one that is undone are being ended.
            let others = program.client.is_some() && is_first;
            return if others {
                Outcome::EndOthers(program.living.iter().copied().collect())
            } else {
                Outcome::Nothing
            };
        }
        let name = name.clone();
        match self.programs.remove(&name) {
            Some(Program { generation, client, .. }) => Outcome::Gone { name, generation, client, death: first },
            None => Outcome::Nothing,
        }
    }
}

impl<C> Default for Programs<C> {
    fn default() -> Programs<C> {
        Programs::new()
    }
}

/// All of it or nothing: the domains if all were made, or else who refused first (by number) and
/// how, and what was made.
pub fn all_or_none<E>(answers: Vec<Result<DomainId, E>>) -> Result<Vec<DomainId>, (usize, E, Vec<DomainId>)> {
    let (mut made, mut refused) = (Vec::new(), None);
    for (number, answer) in answers.into_iter().enumerate() {
        match answer {
            Ok(domain) => made.push(domain),
            Err(error) => refused = refused.or(Some((number, error))),
        }
    }
    match refused {
        Some((number, error)) => Err((number, error, made)),
        None => Ok(made),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn death(domain: DomainId, status: u64) -> Death {
        Death { domain, cause: 1, status, address: 0, rip: 0, cpu_ns: 0 }
    }

    #[test]
    fn the_end_of_one_is_the_end_of_all_and_is_told_once() {
        let mut programs = Programs::new();
        programs.made("crew", 3, "supervisor", Vec::from([10, 11, 12]));
        programs.made("other", 1, "supervisor", Vec::from([20, 21]));
        assert_eq!(programs.died(death(99, 0)), Outcome::Nothing);
        assert_eq!(programs.died(death(11, 7)), Outcome::EndOthers(Vec::from([10, 12])));
        // The others' deaths, of which one may have come by itself, and a death told twice.
        assert_eq!(programs.died(death(12, 137)), Outcome::Nothing);
        assert_eq!(programs.died(death(12, 137)), Outcome::Nothing);
        assert!(programs.is_there("crew"));
        let gone =
            Outcome::Gone { name: "crew".into(), generation: 3, client: Some("supervisor"), death: death(11, 7) };
        assert_eq!(programs.died(death(10, 137)), gone);
        assert_eq!(programs.died(death(10, 137)), Outcome::Nothing);
        assert!(!programs.is_there("crew") && programs.is_there("other"));
        assert_eq!(programs.living(), [20, 21]);
    }

    #[test]
    fn a_program_on_one_core_is_gone_at_once() {
        let mut programs = Programs::new();
        programs.made("crew", 1, (), Vec::from([10]));
        assert_eq!(programs.dispatchers("crew", 1), Some(&[10][..]));
        assert_eq!(programs.dispatchers("crew", 2), None);
        let gone = Outcome::Gone { name: "crew".into(), generation: 1, client: Some(()), death: death(10, 0) };
        assert_eq!(programs.died(death(10, 0)), gone);
    }

    #[test]
    fn what_is_undone_is_told_to_nobody_and_is_there_until_its_last_domain_is_gone() {
        let mut programs: Programs<()> = Programs::new();
        programs.undone("crew", &[]);
        assert!(!programs.is_there("crew"));
        programs.undone("crew", &[10, 12]);
        assert_eq!(programs.dispatchers("crew", 1), None);
        assert_eq!(programs.died(death(12, 0)), Outcome::Nothing);
        assert!(programs.is_there("crew"));
        let gone = Outcome::Gone { name: "crew".into(), generation: 0, client: None, death: death(12, 0) };
        assert_eq!(programs.died(death(10, 0)), gone);
        assert!(!programs.is_there("crew"));

        // One that was made, and could not be started as a whole.
        let mut programs = Programs::new();
        programs.made("crew", 1, (), Vec::from([10, 11]));
        assert!(programs.lives("crew", 1) && !programs.lives("crew", 2));
        programs.undone("crew", &[10, 11]);
        assert_eq!(programs.died(death(10, 0)), Outcome::Nothing);
        assert!(!programs.lives("crew", 1));
        assert!(matches!(programs.died(death(11, 0)), Outcome::Gone { client: None, .. }));
    }

    #[test]
    fn one_refusal_refuses_all() {
        assert_eq!(all_or_none::<()>(Vec::from([Ok(1), Ok(2)])), Ok(Vec::from([1, 2])));
        let answers = Vec::from([Ok(1), Err("full"), Ok(3), Err("gone")]);
        assert_eq!(all_or_none(answers), Err((1, "full", Vec::from([1, 3]))));
    }
}
