//! Where frames and nodes lie, and the words of each core.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::NoMemory;

/// Things that are named by their place.
pub(crate) enum Places<P: 'static> {
    /// Each a box of one, or of none where one was given back: they stay where they are while there
    /// are more.
    Own(Vec<Box<[P]>>),
    /// In memory that other domains have, too: as many as there are.
    #[cfg(not(loom))]
    Given(&'static [P]),
}

impl<P> Places<P> {
    /// Boxes of these.
    pub fn of(all: impl Iterator<Item = P>) -> Places<P> {
        Places::Own(all.map(|one| Box::from([one])).collect())
    }

    /// The one at a place where there is one.
    pub fn at(&self, place: usize) -> &P {
        match self {
            Places::Own(boxes) => &boxes[place][0],
            #[cfg(not(loom))]
            Places::Given(all) => &all[place],
        }
    }

    /// The one at a place, if there is one.
    pub fn get(&self, place: usize) -> Option<&P> {
        match self {
            Places::Own(boxes) => boxes.get(place)?.first(),
            #[cfg(not(loom))]
            Places::Given(all) => all.get(place),
        }
    }

    /// Places have smaller numbers.
    pub fn len(&self) -> usize {
        match self {
            Places::Own(boxes) => boxes.len(),
            #[cfg(not(loom))]
            Places::Given(all) => all.len(),
        }
    }

    /// All, if none was given back.
    pub fn iter(&self) -> impl Iterator<Item = &P> {
        (0..self.len()).map(|place| self.at(place))
    }

    /// The boxes, if there may be more of them.
    pub fn boxes(&mut self) -> Result<&mut Vec<Box<[P]>>, NoMemory> {
        match self {
            Places::Own(boxes) => Ok(boxes),
            #[cfg(not(loom))]
            Places::Given(_) => Err(NoMemory),
        }
    }

    /// Adds one, at the place of one that was given back if there is any.
    pub fn add(&mut self, one: P, hole: Option<u32>) -> Result<u32, NoMemory> {
        let boxes = self.boxes()?;
        let mut boxed = Vec::new();
        boxed.try_reserve_exact(1).map_err(|_| NoMemory)?;
        boxed.push(one);
        if let Some(hole) = hole {
            boxes[hole as usize] = boxed.into_boxed_slice();
            return Ok(hole);
        }
        let place = u32::try_from(boxes.len()).map_err(|_| NoMemory)?;
        boxes.try_reserve(1).map_err(|_| NoMemory)?;
        boxes.push(boxed.into_boxed_slice());
        Ok(place)
    }
}
