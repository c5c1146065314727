//! Objects by index.

/// Objects by index; the index of a removed one is used again.
#[derive(Debug)]
pub struct Slab<T>(Vec<Option<T>>);

impl<T> Slab<T> {
    pub fn insert(&mut self, value: T) -> usize {
        match self.0.iter_mut().enumerate().find(|(_, place)| place.is_none()) {
            Some((index, place)) => {
                *place = Some(value);
                index
            }
            None => {
                self.0.push(Some(value));
                self.0.len() - 1
            }
        }
    }

    pub fn remove(&mut self, index: usize) -> Option<T> {
        self.0.get_mut(index)?.take()
    }

    pub fn get(&self, index: usize) -> Option<&T> {
        self.0.get(index)?.as_ref()
    }

    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.0.get_mut(index)?.as_mut()
    }

    /// Two different ones.
    pub fn pair(&mut self, first: usize, second: usize) -> Option<(&mut T, &mut T)> {
        let [first, second] = self.0.get_disjoint_mut([first, second]).ok()?;
        Some((first.as_mut()?, second.as_mut()?))
    }

    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.0.iter().enumerate().filter_map(|(index, place)| Some((index, place.as_ref()?)))
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab(Vec::new())
    }
}
