//! Circles in a graph: strongly connected components of more than one node.

use std::collections::BTreeSet;

/// The circles among nodes `0..count`, by Tarjan's algorithm; each is sorted.
pub fn circles(count: usize, arrows: &BTreeSet<(usize, usize)>) -> Vec<Vec<usize>> {
    let mut next = vec![Vec::new(); count];
    for (from, to) in arrows {
        next[*from].push(*to);
    }
    let mut search = Search { next, index: vec![None; count], low: vec![0; count], ..Search::default() };
    for node in 0..count {
        if search.index[node].is_none() {
            search.visit(node);
        }
    }
    search.found.retain(|circle| circle.len() > 1);
    search.found.sort();
    search.found
}

#[derive(Default)]
struct Search {
    next: Vec<Vec<usize>>,
    index: Vec<Option<usize>>,
    low: Vec<usize>,
    stack: Vec<usize>,
    visited: usize,
    found: Vec<Vec<usize>>,
}

impl Search {
    fn visit(&mut self, node: usize) {
        (self.index[node], self.low[node]) = (Some(self.visited), self.visited);
        self.visited += 1;
        self.stack.push(node);
        for to in self.next[node].clone() {
            match self.index[to] {
                None => {
                    self.visit(to);
                    self.low[node] = self.low[node].min(self.low[to]);
                }
                Some(index) if self.stack.contains(&to) => self.low[node] = self.low[node].min(index),
                Some(_) => {}
            }
        }
        if self.index[node] == Some(self.low[node]) {
            let start = self.stack.iter().rposition(|other| *other == node).unwrap_or_default();
            let mut circle = self.stack.split_off(start);
            circle.sort_unstable();
            self.found.push(circle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_circles_with_an_arrow_between_them_stay_two() {
        let arrows = BTreeSet::from([(0, 1), (1, 0), (1, 2), (2, 3), (3, 4), (4, 2), (4, 5)]);
        assert_eq!(circles(6, &arrows), [vec![0, 1], vec![2, 3, 4]]);
    }

    #[test]
    fn a_diamond_and_a_node_that_names_itself_are_no_circles() {
        let arrows = BTreeSet::from([(0, 1), (0, 2), (1, 3), (2, 3), (3, 3)]);
        assert_eq!(circles(4, &arrows), Vec::<Vec<usize>>::new());
    }
}
