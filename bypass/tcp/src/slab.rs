//! Numbered places that are reused, last in, first out.

use alloc::vec::Vec;

/// Values under stable numbers. The first `capacity` values never move.
pub struct Slab<T> {
    places: Vec<T>,
    free: Vec<u32>,
    len_max: u32,
}

impl<T> Slab<T> {
    /// A slab for at most `len_max` values.
    pub fn new(len_max: u32) -> Slab<T> {
        Slab {
            places: Vec::new(),
            free: Vec::new(),
            len_max,
        }
    }

    /// A free place, made by `fresh` when none was given back; nothing when all are taken.
    #[inline]
    pub fn take(&mut self, fresh: impl FnOnce() -> T) -> Option<u32> {
        if let Some(index) = self.free.pop() {
            return Some(index);
        }
        if self.places.len() >= self.len_max as usize {
            return None;
        }
        self.places.push(fresh());
        Some(self.places.len() as u32 - 1)
    }

    /// Gives a place back; its value stays as it is until it is taken again.
    #[inline]
    pub fn give(&mut self, index: u32) {
        self.free.push(index);
    }

    /// Places in use.
    pub fn in_use(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Places that were ever used.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// The value, when the number was ever used.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&T> {
        self.places.get(index as usize)
    }

    /// The same, to be changed.
    #[inline]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.places.get_mut(index as usize)
    }
}

impl<T> core::ops::Index<u32> for Slab<T> {
    type Output = T;
    #[inline]
    fn index(&self, index: u32) -> &T {
        &self.places[index as usize]
    }
}

impl<T> core::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.places[index as usize]
    }
}

impl<T> Slab<T> {
    /// Whether [`Slab::take`] would find no place.
    pub fn is_full(&self) -> bool {
        self.free.is_empty() && self.places.len() >= self.len_max as usize
    }
}
