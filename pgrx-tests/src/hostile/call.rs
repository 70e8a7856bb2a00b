//! A session that makes calls and judges the answers.

use crate::Result;
use crate::cluster::DATABASE;
use crate::server::Server;
use postgres::{Client, NoTls};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A call that waits is ended by this statement timeout.
pub const TIMEOUT: Duration = Duration::from_millis(1_000);
/// How much longer a call may take on a busy machine, which checks for its end only now and then.
const GRACE: Duration = Duration::from_secs(15);
/// What a stack frame of a library, or one of our bugs, leaves in a text.
const TRACES: [&str; 12] = [
    "shardmaster::",
    "pgrx",
    "core::",
    "std::",
    "   0:",
    ".rs:",
    "panicked",
    "unwrap",
    "backtrace",
    "SpiError",
    "Utf8Error",
    "overflow when",
];

pub struct Caller {
    client: Client,
    role: String,
    notices: Arc<Mutex<Vec<String>>>,
}

/// The SQLSTATE of the answer, or `None` if the call was carried out.
pub type Answer = Option<String>;

impl Caller {
    pub fn new(server: &Server, role: &str) -> Result<Caller> {
        let notices = Arc::new(Mutex::new(Vec::new()));
        let mut config = server.config(DATABASE, role);
        let heard = notices.clone();
        config.notice_callback(move |notice| {
            let text = format!("{} {:?} {:?}", notice.message(), notice.detail(), notice.hint());
            if let Ok(mut heard) = heard.lock() {
                heard.push(text);
            }
        });
        let mut client = config.connect(NoTls)?;
        client.batch_execute(&format!("SET statement_timeout = {}", TIMEOUT.as_millis()))?;
        Ok(Caller { client, role: role.into(), notices })
    }

    /// Makes the call and rolls it back. Returns the SQLSTATE of a refusal, and an error if the answer is one
    /// that nobody should get.
    pub fn make(&mut self, begin: &str, call: &str) -> Result<Answer> {
        let answer = self.commit(&format!("{begin}; {call}"));
        self.client.batch_execute("ROLLBACK").map_err(|e| self.wrong(call, &format!("and then: {e}")))?;
        answer
    }

    /// Makes the call without rolling it back.
    pub fn commit(&mut self, call: &str) -> Result<Answer> {
        let begun = Instant::now();
        let outcome = self.client.simple_query(call);
        let took = begun.elapsed();
        if took > TIMEOUT + GRACE {
            return Err(self.wrong(call, &format!("took {took:?}")));
        }
        let heard: Vec<String> = self.notices.lock().map(|mut n| n.drain(..).collect()).unwrap_or_default();
        if let Some(notice) = heard.iter().find(|text| is_trace(text)) {
            return Err(self.wrong(call, notice));
        }
        let Err(error) = outcome else { return Ok(None) };
        let Some(db) = error.as_db_error() else {
            return Err(self.wrong(call, &format!("the session is lost: {error:?}")));
        };
        let text = format!("{} {:?} {:?} {:?}", db.message(), db.detail(), db.hint(), db.where_());
        let code = db.code().code();
        if code.starts_with("XX") || code.starts_with("P000") || db.message().is_empty() || is_trace(&text) {
            return Err(self.wrong(call, &format!("{code} {text}")));
        }
        Ok(Some(code.to_owned()))
    }

    fn wrong(&self, call: &str, what: &str) -> crate::Error {
        let short: String = what.chars().take(2_000).collect();
        format!("{}: {call}\n    {short}", self.role).into()
    }
}

fn is_trace(text: &str) -> bool {
    TRACES.iter().any(|trace| text.contains(trace))
}
