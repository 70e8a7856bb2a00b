//! Checks that some place takes writes again, whatever has happened. From each state a path must lead to one
//! in which a place does. The path consists of actions of parties that are back and calls of the operator,
//! without another fault. Whatever is enabled forever happens at some time, so a worker that goes round in a
//! circle leaves it.

use crate::model::{Act, Split};
use crate::properties::is_served;
use crate::state::State;
use stateright::Model;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// The result of a walk over all states.
pub struct Walk {
    pub states: usize,
    /// A shortest path into a state from which no path leads out.
    pub stuck: Option<Vec<Act>>,
    pub stuck_in: Option<State>,
    pub stuck_states: usize,
}

/// A hash of small numbers that nobody chooses to do harm. The usual hash took a tenth of the time.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x51_7c_c1_b7_27_22_0a_95);
    }
}

struct Graph {
    states: Vec<State>,
    came_by: Vec<Option<(u32, Act)>>,
    /// For each state, the states from which it is reached without a fault.
    back: Vec<(u32, u32)>,
}

fn walk(split: &Split) -> Graph {
    let mut graph = Graph { states: Vec::new(), came_by: Vec::new(), back: Vec::new() };
    let mut known: HashMap<State, u32, BuildHasherDefault<Mixed>> = HashMap::default();
    for state in split.init_states() {
        known.insert(state, graph.states.len() as u32);
        graph.states.push(state);
        graph.came_by.push(None);
    }
    let (mut at, mut acts) = (0, Vec::new());
    while at < graph.states.len() {
        let state = graph.states[at];
        split.actions(&state, &mut acts);
        for act in acts.drain(..) {
            let Some(next) = split.next_state(&state, act) else { continue };
            let number = *known.entry(next).or_insert_with(|| {
                graph.states.push(next);
                graph.came_by.push(Some((at as u32, act)));
                graph.states.len() as u32 - 1
            });
            if !act.is_fault() {
                graph.back.push((number, at as u32));
            }
        }
        at += 1;
    }
    graph.back.sort_unstable();
    graph
}

pub fn check(split: &Split) -> Walk {
    let graph = walk(split);
    let mut is_good: Vec<bool> = graph.states.iter().map(is_served).collect();
    let mut open: Vec<u32> = (0..graph.states.len() as u32).filter(|at| is_good[*at as usize]).collect();
    while let Some(at) = open.pop() {
        let first = graph.back.partition_point(|edge| edge.0 < at);
        for (_, from) in graph.back[first..].iter().take_while(|edge| edge.0 == at) {
            if !std::mem::replace(&mut is_good[*from as usize], true) {
                open.push(*from);
            }
        }
    }
    let stuck = is_good.iter().position(|good| !good);
    Walk {
        states: graph.states.len(),
        stuck: stuck.map(|at| way(&graph, at)),
        stuck_in: stuck.map(|at| graph.states[at]),
        stuck_states: is_good.iter().filter(|good| !**good).count(),
    }
}

fn way(graph: &Graph, to: usize) -> Vec<Act> {
    let mut acts = Vec::new();
    let mut at = to;
    while let Some((from, act)) = graph.came_by[at] {
        acts.push(act);
        at = from as usize;
    }
    acts.reverse();
    acts
}
