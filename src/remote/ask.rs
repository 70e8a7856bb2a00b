//! Small questions to several shards at the same time, within one deadline: for figures that an operator at a terminal
//! waits for.

use super::connection::Connection;
use super::error::RemoteError;
use super::params::Params;
use super::result::Rows;
use super::wait::{self, Ready, Woken};
use std::time::{Duration, Instant};

pub type ShardAnswer = Result<Rows, RemoteError>;

/// What one shard is asked, one question after the other in one session.
pub struct Ask {
    /// The shard's key, for messages.
    pub shard: String,
    /// The connection parameters, or why there are none.
    pub params: Result<Params, RemoteError>,
    pub questions: Vec<String>,
}

/// Asks all shards; returns for each of them an answer to each question. An answer that has not come within the time
/// is an error, and its session is closed. An interrupt unwinds.
pub fn all(asks: Vec<Ask>, within: Duration) -> Vec<Vec<ShardAnswer>> {
    let deadline = Instant::now() + within;
    let mut sessions: Vec<AskSession> = asks.into_iter().map(|ask| AskSession::start(ask, within)).collect();
    loop {
        let mut waiting = Vec::new();
        for (index, session) in sessions.iter().enumerate() {
            if let AskStage::Open { connection, waits_for, .. } = &session.stage {
                waiting.push((index, (connection.socket(), *waits_for)));
            }
        }
        let sockets: Vec<(i32, Ready)> = waiting.iter().map(|(_, socket)| *socket).collect();
        // An endless answer must not keep the others waiting.
        if sockets.is_empty() || Instant::now() >= deadline {
            break;
        }
        match wait::for_each(&sockets, deadline) {
            Woken::TimedOut => break,
            Woken::Latch => {}
            Woken::Sockets(positions) => {
                for position in positions {
                    if let Some(session) =
                        waiting.get(position).and_then(|(index, _)| sessions.get_mut(*index))
                    {
                        session.go_on();
                    }
                }
            }
        }
    }
    sessions.into_iter().map(|session| session.end(within)).collect()
}

struct AskSession {
    shard: String,
    questions: Vec<String>,
    answers: Vec<ShardAnswer>,
    stage: AskStage,
    /// These include files that are read while it connects.
    _params: Params,
}

enum AskStage {
    Open {
        connection: Box<Connection>,
        waits_for: Ready,
        /// The answers to the running question. `None` while connecting.
        answer: Option<ShardAnswer>,
    },
    Ended(Option<RemoteError>),
}

impl AskSession {
    fn start(ask: Ask, within: Duration) -> AskSession {
        let started = ask.params.and_then(|params| {
            Connection::start(&ask.shard, &params.with(&[]), within).map(|connection| (connection, params))
        });
        let (stage, params) = match started {
            Ok((connection, params)) => {
                let connection = Box::new(connection);
                (AskStage::Open { connection, waits_for: Ready::ReadOrWrite, answer: None }, params)
            }
            Err(error) => (AskStage::Ended(Some(error)), Params::default()),
        };
        AskSession { shard: ask.shard, questions: ask.questions, answers: Vec::new(), stage, _params: params }
    }

    /// Continues now that the socket is ready.
    fn go_on(&mut self) {
        if let Err(ended) = self.try_to_go_on() {
            self.stage = AskStage::Ended(ended);
        }
    }

    /// Continues. An error means that the session ends, with or without a reason.
    fn try_to_go_on(&mut self) -> Result<(), Option<RemoteError>> {
        let AskStage::Open { connection, waits_for, answer } = &mut self.stage else { return Ok(()) };
        let next = match answer {
            None => connection.go_on_connecting()?,
            Some(answer) => connection.go_on_answering(answer)?,
        };
        if let Some(ready) = next {
            *waits_for = ready;
            return Ok(());
        }
        if let Some(answer) = answer.take() {
            self.answers.push(answer);
        }
        let Some(question) = self.questions.get(self.answers.len()) else { return Err(None) };
        connection.send(question)?;
        (*waits_for, *answer) = (Ready::ReadOrWrite, Some(Ok(Rows::default())));
        Ok(())
    }

    /// Returns the answers; a question without an answer gets the reason why.
    fn end(mut self, within: Duration) -> Vec<ShardAnswer> {
        let reason = match self.stage {
            AskStage::Ended(Some(error)) => error,
            AskStage::Ended(None) | AskStage::Open { .. } => RemoteError::no_answer(&self.shard, within),
        };
        self.answers.resize_with(self.questions.len(), || Err(reason.clone()));
        self.answers
    }
}
