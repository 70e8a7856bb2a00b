//! How often a server is asked: each time is a way there and back, however long the question is.

use super::direction::Direction;
use super::{Relay, lock};

/// Bytes of a question that are kept.
const KEPT: usize = 200;

/// What a session has asked, and has waited for the answer to.
#[derive(Clone, Debug)]
pub struct Request {
    /// What the session is for.
    pub application: String,
    /// How its first message begins.
    pub text: String,
}

impl Relay {
    /// Listens from now on.
    pub fn listen(&self) {
        lock(&self.link).heard = Some(Vec::new());
    }

    /// What was asked since it was asked for last.
    pub fn heard(&self) -> Vec<Request> {
        lock(&self.link).heard.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl Direction {
    /// Whoever asks on before an answer has come does not wait for one.
    pub(super) fn hear(&self, bytes: &[u8]) {
        let mut pipe = lock(&self.pipe);
        let was_asked = std::mem::replace(&mut pipe.is_asked, self.is_client);
        if was_asked || !self.is_client {
            return;
        }
        let application = pipe.application.clone();
        drop(pipe);
        if let Some(heard) = &mut lock(&self.link).heard {
            let text = bytes.iter().skip(5).take(KEPT).copied().collect::<Vec<u8>>();
            heard.push(Request { application, text: String::from_utf8_lossy(&text).into_owned() });
        }
    }
}
