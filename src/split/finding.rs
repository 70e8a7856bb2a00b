//! What a check finds, in words for the operator.

use crate::agent::error::SplitError;
use crate::agent::session::Side;
use crate::clean;
use crate::split::remark::{self, Remark};

/// One line of shard_split_check().
#[derive(Debug)]
pub struct Finding {
    pub name: String,
    pub ok: bool,
    pub detail: String,
    pub hint: Option<String>,
    /// It may pass by itself: a server that is away.
    pub transient: bool,
    /// Of a remark: what it is about, by which it is accepted.
    pub object: Option<String>,
}

impl Finding {
    pub fn new(name: &str, ok: bool, detail: impl Into<String>, hint: &str) -> Finding {
        let hint = (!ok && !hint.is_empty()).then(|| clean::said(hint));
        // Names of tables and the like are their owners' texts, and end in a terminal.
        let detail = clean::more(&detail.into());
        Finding { name: clean::message(name), ok, detail, hint, transient: false, object: None }
    }

    /// What is well, and worth a second look.
    pub fn note(name: &str, detail: impl Into<String>, hint: &str) -> Finding {
        Finding { hint: Some(clean::said(hint)), ..Finding::new(name, true, detail, "") }
    }

    /// What stops the split until its operator accepts it by the remark's name and the object's.
    pub fn remark(remark: Remark, object: &str, detail: impl Into<String>) -> Finding {
        let object = Some(remark::object(object));
        Finding { object, ..Finding::new(remark.check_name(), false, detail, "") }
    }

    /// The same of a plan that may take another one back (`reverse_of`): there it is said, and stops nothing.
    pub fn remark_of(reverse_of: Option<i64>, remark: Remark, object: &str, detail: String) -> Finding {
        match reverse_of {
            Some(there) => Finding::note(
                remark.check_name(),
                detail,
                &format!("Taking split {there} back does not wait for it."),
            ),
            None => Finding::remark(remark, object, detail),
        }
    }

    pub fn unreachable(side: Side, error: SplitError) -> Finding {
        let transient = error.is_transient();
        let failure = error.into_failure();
        let hint = failure.hint.clone().unwrap_or_default();
        let name = format!("{}: connection", side.as_str());
        Finding { transient, ..Finding::new(&name, false, failure.message, &hint) }
    }
}
