//! Pairs of sessions that work at the same time, one of each side: the step's own, and those of its streams. One pair
//! is the plain case. All are sent their messages before the first answer is read.

use crate::agent::error::Result;
use crate::remote::result::Rows;
use crate::remote::{Connection, FOR_EVER, RemoteError};
use crate::split::engine::stream::StreamSessions;
use std::time::Duration;

/// A session of the source, and one of the target.
pub struct SessionPair<'a> {
    pub source: &'a mut Connection,
    pub target: &'a mut Connection,
}

/// The answers of both.
pub type PairAnswers = [std::result::Result<Rows, RemoteError>; 2];

impl<'a> SessionPair<'a> {
    /// Returns the step's own pair, and then those of streams.
    pub fn all(
        own: SessionPair<'a>,
        streams: &'a mut [StreamSessions],
    ) -> impl Iterator<Item = SessionPair<'a>> {
        let of_stream = |stream: &'a mut StreamSessions| SessionPair {
            source: &mut stream.reader,
            target: &mut stream.writer,
        };
        std::iter::once(own).chain(streams.iter_mut().map(of_stream))
    }
}

/// Sends each pair its two messages, and returns the answers.
pub fn ask_both(pairs: &mut [SessionPair<'_>], messages: &[[String; 2]]) -> Result<Vec<PairAnswers>> {
    for (pair, [to_source, to_target]) in pairs.iter_mut().zip(messages) {
        pair.source.send(to_source)?;
        pair.target.send(to_target)?;
    }
    let mut sessions: Vec<&mut Connection> =
        pairs.iter_mut().flat_map(|pair| [&mut *pair.source, &mut *pair.target]).collect();
    let mut answers = Connection::finish_all(&mut sessions, FOR_EVER).into_iter();
    let mut next = || answers.next().unwrap_or_else(|| Ok(Rows::default()));
    Ok(messages.iter().map(|_| [next(), next()]).collect())
}

/// Asks each session its question, if there is one for it.
pub fn ask_each<'a>(
    sessions: impl Iterator<Item = &'a mut Connection>,
    timeout: Duration,
    question: impl Fn(usize) -> Option<String>,
) -> Result<Vec<Option<Rows>>> {
    let mut sessions: Vec<&mut Connection> = sessions.collect();
    let questions: Vec<Option<String>> = (0..sessions.len()).map(question).collect();
    let answers = Connection::ask_all(&mut sessions, &questions, timeout)?;
    answers.into_iter().map(|answer| Ok(answer.transpose()?)).collect()
}
