//! Comparison of rows of several slices at the same time, each by its own pair of sessions. Differing rows are
//! reported one slice after the other: there are few of those.

use crate::agent::error::Result;
use crate::remote::copy::Copied;
use crate::remote::parallel::{FailedPiece, Lane, pipe_abreast};
use crate::remote::result::Rows;
use crate::remote::{Connection, FOR_EVER, RemoteError};
use crate::split::engine::Engine;
use crate::split::engine::stream::StreamSessions;
use crate::split::verify::rows::{self, Sides, SliceResult};

/// Rows of one leaf.
pub struct Slice {
    /// The lane whose sessions compare them: 0 for the step's, then the streams'.
    pub lane: usize,
    pub leaf: String,
    pub condition: String,
}

/// Returns both sessions of some lanes, in their order: the step's, and those of the streams that see what it sees.
pub fn pairs<'a>(
    (reader, target): (&'a mut Connection, &'a mut Connection),
    streams: &'a mut [StreamSessions],
    mut is_one: impl FnMut(usize) -> bool,
) -> Vec<(&'a mut Connection, &'a mut Connection)> {
    let others = streams.iter_mut().map(|stream| (&mut stream.reader, &mut stream.writer));
    let all = std::iter::once((reader, target)).chain(others).enumerate();
    all.filter(|(lane, _)| is_one(*lane)).map(|(_, pair)| pair).collect()
}

/// Compares rows of a table's leaves on the source, each looked for on the target.
pub fn of_source(
    engine: &mut Engine,
    position: usize,
    slices: &[Slice],
    unless: &str,
) -> Result<Vec<SliceResult>> {
    let Engine { plan, reader, target, streams, tables, .. } = engine;
    let table = &tables[position];
    let mut pairs = pairs((reader, target), &mut streams.open, |lane| is_in(slices, lane));
    ask(pairs.iter_mut().map(|(_, target)| &mut **target), |_| Some(rows::FORGET_ON_TARGET.to_owned()))?;
    let lanes = pairs.iter_mut().zip(slices);
    let lanes = lanes
        .map(|((source, target), slice)| Lane {
            source,
            target,
            pieces: vec![rows::keys_from_source(table, &slice.leaf, &slice.condition, true)],
        })
        .collect();
    let copied = counts(pipe_abreast(lanes)).map_err(|error| rows::without_values(error, table))?;
    let question = format!("ANALYZE pg_temp.verify_keys; {}", rows::looked(plan, table, unless));
    let answers = ask(pairs.iter_mut().map(|(_, target)| &mut **target), |number| {
        (copied[number] > 0).then(|| question.clone())
    })?;
    let mut all = Vec::new();
    for (((source, target), slice), answer) in pairs.into_iter().zip(slices).zip(answers) {
        let mut sides = Sides { plan, table, source, target };
        all.push(match answer {
            Some(rows) => sides.tell(&rows, (&slice.leaf, &slice.condition), unless)?,
            None => SliceResult::default(),
        });
    }
    Ok(all)
}

/// Finds rows of its leaves on the target that the source does not have.
pub fn of_target(engine: &mut Engine, position: usize, slices: &[Slice]) -> Result<Vec<SliceResult>> {
    let Engine { plan, reader, target, streams, tables, .. } = engine;
    let table = &tables[position];
    let mut pairs = pairs((reader, target), &mut streams.open, |lane| is_in(slices, lane));
    ask(pairs.iter_mut().map(|(reader, _)| &mut **reader), |_| Some(rows::FORGET_ON_SOURCE.to_owned()))?;
    // These are copied from the target.
    let lanes = pairs.iter_mut().zip(slices);
    let lanes = lanes
        .map(|((reader, target), slice)| Lane {
            source: target,
            target: reader,
            pieces: vec![rows::keys_from_target(table, &slice.leaf, &slice.condition)],
        })
        .collect();
    let copied = counts(pipe_abreast(lanes))?;
    let question = rows::unknown_to_source(plan, table);
    let answers = ask(pairs.iter_mut().map(|(reader, _)| &mut **reader), |number| {
        (copied[number] > 0).then(|| question.clone())
    })?;
    let mut all = Vec::new();
    for ((reader, _), answer) in pairs.into_iter().zip(answers) {
        let mut compared = SliceResult::default();
        if let Some(found) = answer {
            rows::note(reader, table, found, &mut compared)?;
        }
        all.push(compared);
    }
    Ok(all)
}

fn is_in(slices: &[Slice], lane: usize) -> bool {
    slices.iter().any(|slice| slice.lane == lane)
}

/// Returns how many rows each lane has copied, of one piece.
fn counts(
    copied: std::result::Result<Vec<Vec<Copied>>, FailedPiece>,
) -> std::result::Result<Vec<u64>, RemoteError> {
    let copied = copied.map_err(|failed| failed.error)?;
    Ok(copied.iter().map(|pieces| pieces.iter().map(|piece| piece.rows).sum()).collect())
}

/// Asks each session its question, if there is one for it, all at the same time.
fn ask<'a>(
    sessions: impl Iterator<Item = &'a mut Connection>,
    question: impl Fn(usize) -> Option<String>,
) -> Result<Vec<Option<Rows>>> {
    let mut sessions: Vec<&mut Connection> = sessions.collect();
    let questions: Vec<Option<String>> = (0..sessions.len()).map(question).collect();
    let answers = Connection::ask_all(&mut sessions, &questions, FOR_EVER)?;
    answers.into_iter().map(|answer| Ok(answer.transpose()?)).collect()
}
