//! Whether somebody takes writes again, whatever has happened: from each state a way leads to one
//! in which one place does, by what parties that are back do of themselves and by the calls of
//! the operator, without another fault. Whatever is enabled for ever happens some time, so a
//! worker that goes round in a circle leaves it.

use crate::model::{Act, Split};
use crate::properties::is_served;
use crate::state::State;
use stateright::Model;
use std::collections::HashMap;

/// What a walk over all states has found.
pub struct Walk {
    pub states: usize,
    /// A shortest way into a state from which no way leads out.
    pub stuck: Option<Vec<Act>>,
    pub stuck_in: Option<State>,
    pub stuck_states: usize,
}

struct Graph {
    states: Vec<State>,
    came_by: Vec<Option<(u32, Act)>>,
    /// From where states are reached without a fault.
    back: Vec<(u32, u32)>,
}

fn walk(split: &Split) -> Graph {
    let mut graph = Graph { states: Vec::new(), came_by: Vec::new(), back: Vec::new() };
    let mut known: HashMap<State, u32> = HashMap::new();
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
