//! The findings of a check, in words for the operator.

use crate::agent::error::SplitError;
use crate::agent::session::Side;
use crate::clean;
use crate::error::Failure;
use crate::split::remark::{self, Remark};

/// One line of shard_split_check().
#[derive(Debug)]
pub struct Finding {
    pub name: String,
    pub ok: bool,
    pub detail: String,
    pub hint: Option<String>,
    /// The finding may go away without action, for example if a server is away.
    pub transient: bool,
    /// For a remark: the object that it is about, by which it is accepted.
    pub object: Option<String>,
}

impl Finding {
    pub fn new(name: &str, ok: bool, detail: impl Into<String>, hint: &str) -> Finding {
        let hint = (!ok && !hint.is_empty()).then(|| clean::printable(hint));
        // Names of tables and the like are texts of their owners, and are shown in a terminal.
        let detail = clean::more(&detail.into());
        Finding { name: clean::message(name), ok, detail, hint, transient: false, object: None }
    }

    /// Returns a finding that is no error but deserves attention.
    pub fn note(name: &str, detail: impl Into<String>, hint: &str) -> Finding {
        Finding { hint: Some(clean::printable(hint)), ..Finding::new(name, true, detail, "") }
    }

    /// Returns a finding that stops the split until its operator accepts it by the remark's name and the object's.
    pub fn remark(remark: Remark, object: &str, detail: impl Into<String>) -> Finding {
        let object = Some(remark::object(object));
        Finding { object, ..Finding::new(remark.check_name(), false, detail, "") }
    }

    /// Returns a remark of a plan. If the plan reverses another one (`reverse_of`), the remark is only shown, and
    /// stops nothing.
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

    pub fn of_failure(name: &str, failure: Failure) -> Finding {
        Finding::new(name, false, failure.message, &failure.hint.unwrap_or_default())
    }

    pub fn of_error(name: &str, error: SplitError) -> Finding {
        let transient = error.is_transient();
        Finding { transient, ..Finding::of_failure(name, error.into_failure()) }
    }

    pub fn unreachable(side: Side, error: SplitError) -> Finding {
        Finding::of_error(&format!("{}: connection", side.as_str()), error)
    }
}
