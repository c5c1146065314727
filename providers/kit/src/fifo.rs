//! A queue of posted work.

use dat_plugin::Segment;

use crate::MemSpan;

/// Posts in order, each an item with its segments. All memory is allocated when it is made.
#[derive(Debug)]
pub struct Fifo<T> {
    items: Box<[(T, usize)]>,
    segments: Box<[MemSpan]>,
    per_item: usize,
    head: usize,
    len: usize,
}

impl<T: Copy + Default> Fifo<T> {
    /// Room for `capacity` posts of up to `per_item` segments each; `None` when there is not enough memory.
    pub fn new(capacity: usize, per_item: usize) -> Option<Fifo<T>> {
        let items = filled((T::default(), 0), capacity)?;
        let segments = filled(MemSpan::default(), capacity.checked_mul(per_item)?)?;
        Some(Fifo { items, segments, per_item, head: 0, len: 0 })
    }

    /// Puts a post at the end. `false`: there is no room for it, or it has too many segments.
    #[inline]
    pub fn push(&mut self, item: T, segments: &[Segment]) -> bool {
        if self.len == self.items.len() || segments.len() > self.per_item {
            return false;
        }
        let mut at = self.head + self.len;
        if at >= self.items.len() {
            at -= self.items.len();
        }
        self.items[at] = (item, segments.len());
        for (span, segment) in self.segments[at * self.per_item..].iter_mut().zip(segments) {
            *span = segment.into();
        }
        self.len += 1;
        true
    }

    /// The oldest post.
    #[inline]
    pub fn front(&self) -> Option<(&T, &[MemSpan])> {
        if self.len == 0 {
            return None;
        }
        let (item, segments) = &self.items[self.head];
        Some((item, &self.segments[self.head * self.per_item..][..*segments]))
    }

    /// Forgets the oldest post.
    #[inline]
    pub fn pop(&mut self) {
        if self.len > 0 {
            self.len -= 1;
            self.head += 1;
            if self.head == self.items.len() {
                self.head = 0;
            }
        }
    }

    /// Changes the room; posts stay. `false`: more posts wait than would fit, or there is not enough memory.
    pub fn resize(&mut self, capacity: usize) -> bool {
        if capacity < self.len {
            return false;
        }
        let Some(mut other) = Fifo::new(capacity, self.per_item) else { return false };
        while let Some((item, segments)) = self.front() {
            other.items[other.len] = (*item, segments.len());
            other.segments[other.len * self.per_item..][..segments.len()].copy_from_slice(segments);
            other.len += 1;
            self.pop();
        }
        *self = other;
        true
    }

    /// Forgets all posts.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Posts that wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether there is no room for another post.
    pub fn is_full(&self) -> bool {
        self.len == self.items.len()
    }
}

fn filled<T: Copy>(value: T, count: usize) -> Option<Box<[T]>> {
    let mut list = Vec::new();
    list.try_reserve_exact(count).ok()?;
    list.resize(count, value);
    Some(list.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn posts_come_back_in_order_across_the_end_of_the_ring() {
        let mut fifo = Fifo::<u32>::new(3, 0).unwrap();
        let mut next = 0;
        for n in 0..20 {
            while fifo.push(n * 10 + fifo.len() as u32, &[]) {}
            assert!(fifo.is_full());
            for _ in 0..=n % 3 {
                let (item, segments) = fifo.front().unwrap();
                assert!(*item >= next && segments.is_empty());
                next = *item;
                fifo.pop();
            }
        }
        fifo.clear();
        assert!(fifo.is_empty() && fifo.front().is_none());
        fifo.pop();
        assert_eq!(fifo.len(), 0, "there is nothing to forget");
    }

    #[test]
    fn a_resized_ring_keeps_what_waits() {
        let mut fifo = Fifo::<u32>::new(3, 0).unwrap();
        for n in [0, 1, 2] {
            assert!(fifo.push(n, &[]));
        }
        fifo.pop();
        assert!(fifo.push(3, &[]) && !fifo.resize(2) && fifo.resize(5));
        assert!(fifo.push(4, &[]) && fifo.push(5, &[]) && fifo.is_full());
        for n in 1..=5 {
            assert_eq!(fifo.front().map(|(item, _)| *item), Some(n));
            fifo.pop();
        }
    }

    #[test]
    fn a_ring_without_room_takes_nothing() {
        let mut fifo = Fifo::<u32>::new(0, 4).unwrap();
        assert!(!fifo.push(1, &[]));
        assert!(fifo.front().is_none());
        assert!(Fifo::<u32>::new(usize::MAX, 16).is_none());
        assert!(Fifo::<u32>::new(2, usize::MAX).is_none());
    }
}
