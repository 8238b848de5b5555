//! Which program computes which pieces.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What packing needs to know of a piece.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Load {
    pub(super) cost: u64,
    /// Comes last in its program, which has one such piece at most.
    pub(super) last: bool,
}

/// Spreads pieces over programs so that the longest program is short; costs are in falling order. The better of two
/// rules: longest piece first to the least loaded program, and the least capacity for which first-fit packing succeeds,
/// which finds the even fillings that the first one misses.
pub(super) fn spread(loads: &[Load], programs: usize) -> Vec<Vec<usize>> {
    let (longest, greedy) = longest_first(loads, programs);
    let total: u64 = loads.iter().map(|load| load.cost).sum();
    let (mut low, mut high) = (total.div_ceil(programs as u64), longest);
    let mut best = greedy;
    while low < high {
        let capacity = low + (high - low) / 2;
        match first_fit(loads, programs, capacity) {
            Some(packed) => {
                best = packed;
                high = capacity;
            }
            None => low = capacity + 1,
        }
    }
    side_by_side(loads, best)
}

/// Exchanges pieces of equal cost so that neighbours, which share operands, are computed at the same time by different
/// programs rather than one after the other by one.
fn side_by_side(loads: &[Load], mut lists: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
    let mut places: Vec<(Load, usize, usize)> = Vec::with_capacity(loads.len());
    for (program, list) in lists.iter_mut().enumerate() {
        list.sort_by_key(|&index| loads[index].last);
        places.extend(list.iter().enumerate().map(|(place, &index)| (loads[index], place, program)));
    }
    places.sort_unstable();
    let mut pieces: Vec<usize> = (0..loads.len()).collect();
    pieces.sort_by_key(|&index| loads[index]);
    for (index, (_, place, program)) in pieces.into_iter().zip(places) {
        lists[program][place] = index;
    }
    lists
}

fn longest_first(loads: &[Load], programs: usize) -> (u64, Vec<Vec<usize>>) {
    let mut lists = vec![Vec::new(); programs];
    // Pieces that must be last go to programs of their own first.
    let (last, others): (Vec<_>, Vec<_>) = (0..loads.len()).partition(|&index| loads[index].last);
    let mut free = BinaryHeap::new();
    for (program, list) in lists.iter_mut().enumerate() {
        let own = last.get(program).copied();
        list.extend(own);
        free.push(Reverse((own.map_or(0, |index| loads[index].cost), program)));
    }
    for index in others {
        if let Some(Reverse((load, program))) = free.pop() {
            lists[program].push(index);
            free.push(Reverse((load + loads[index].cost, program)));
        }
    }
    (free.iter().map(|Reverse((load, _))| *load).max().unwrap_or(0), lists)
}

/// Each piece to the first program that has room, if there is one for all.
fn first_fit(loads: &[Load], programs: usize, capacity: u64) -> Option<Vec<Vec<usize>>> {
    let mut filled = vec![Load { cost: 0, last: false }; programs];
    let mut lists = vec![Vec::new(); programs];
    for (index, load) in loads.iter().enumerate() {
        let fits = |filled: &Load| filled.cost + load.cost <= capacity && !(filled.last && load.last);
        let program = filled.iter().position(fits)?;
        filled[program].cost += load.cost;
        filled[program].last |= load.last;
        lists[program].push(index);
    }
    Some(lists)
}
