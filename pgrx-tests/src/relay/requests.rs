//! The requests to a server. Each is a round trip, however long the request is.

use super::direction::Direction;
use super::{Relay, lock};

/// The number of bytes of a request that are kept.
const KEPT: usize = 200;

/// A request of a session, whose answer the session has waited for.
#[derive(Clone, Debug)]
pub struct Request {
    /// The session's application name.
    pub application: String,
    /// The beginning of its first message.
    pub text: String,
}

impl Relay {
    /// Records requests from now on.
    pub fn listen(&self) {
        lock(&self.link).heard = Some(Vec::new());
    }

    /// Returns the requests since the last call.
    pub fn heard(&self) -> Vec<Request> {
        lock(&self.link).heard.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl Direction {
    /// Records a request. A client that sends more before an answer arrives is not waiting for that answer.
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
