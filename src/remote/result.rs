//! The answers of a shard: rows of small queries, or an error.

use super::error::{RemoteError, hint_of};
use super::number::MOST;
use crate::clean;
use crate::error::SqlState;
use pq_sys as pq;
use std::ffi::{CStr, c_int};
use std::ptr::NonNull;

/// The rows of a small control query, as text.
#[derive(Debug, Default)]
pub struct Rows {
    pub rows: Vec<Vec<Option<String>>>,
    /// Whether the statement returns rows, even if there were none.
    pub has_columns: bool,
    /// The number of rows that a command affected, from its tag.
    pub affected: u64,
}

impl Rows {
    /// Returns the first column of the first row.
    pub fn scalar(&self) -> Option<&str> {
        self.rows.first()?.first()?.as_deref()
    }

    /// Whether the first column of the first row is true.
    pub fn is_true(&self) -> bool {
        self.scalar() == Some("t")
    }

    /// Returns the rows of two columns, without those that have a NULL.
    pub fn pairs(self) -> impl Iterator<Item = (String, String)> {
        self.rows.into_iter().filter_map(|row| {
            let [first, second] = <[_; 2]>::try_from(row).ok()?;
            Some((first?, second?))
        })
    }

    /// Returns the first column, without NULLs.
    pub fn column(self) -> impl Iterator<Item = String> {
        self.rows.into_iter().filter_map(|row| row.into_iter().next().flatten())
    }
}

/// The kind of a result.
pub(super) enum ResultStatus {
    Rows,
    Copy,
    Failed,
}

/// A result that frees itself.
pub(super) struct QueryResult(pub(super) NonNull<pq::PGresult>);

impl QueryResult {
    pub(super) fn status(&self) -> ResultStatus {
        use pq::ExecStatusType as E;
        // SAFETY: the result is live.
        match unsafe { pq::PQresultStatus(self.0.as_ptr()) } {
            E::PGRES_COMMAND_OK | E::PGRES_TUPLES_OK | E::PGRES_EMPTY_QUERY | E::PGRES_SINGLE_TUPLE => {
                ResultStatus::Rows
            }
            E::PGRES_COPY_IN | E::PGRES_COPY_OUT => ResultStatus::Copy,
            _ => ResultStatus::Failed,
        }
    }

    /// Returns the rows of a small query, or its error; the outer error is for any other result.
    pub(super) fn answer(&self, shard: &str) -> Result<Result<Rows, RemoteError>, RemoteError> {
        match self.status() {
            ResultStatus::Rows => Ok(Ok(self.rows())),
            ResultStatus::Failed => Ok(Err(self.error(shard))),
            ResultStatus::Copy => Err(RemoteError::connection(shard, "unexpected COPY")),
        }
    }

    pub(super) fn affected(&self) -> u64 {
        // SAFETY: as above.
        let tag = unsafe { CStr::from_ptr(pq::PQcmdTuples(self.0.as_ptr())) };
        // The number is bounded, so that sums of them do not overflow, whatever the server writes into the tag.
        tag.to_str().ok().and_then(|t| t.parse().ok()).map_or(0, |rows: u64| rows.min(MOST.unsigned_abs()))
    }

    /// Whether it is the end of a transaction that has been committed.
    pub(super) fn is_commit(&self) -> bool {
        // SAFETY: as above.
        unsafe { CStr::from_ptr(pq::PQcmdStatus(self.0.as_ptr())) }.to_bytes() == b"COMMIT"
    }

    fn rows(&self) -> Rows {
        let raw = self.0.as_ptr();
        // SAFETY: as above.
        let (rows, columns) = unsafe { (pq::PQntuples(raw), pq::PQnfields(raw)) };
        // SAFETY: as above.
        let cell = |row, column| unsafe {
            (pq::PQgetisnull(raw, row, column) == 0)
                .then(|| CStr::from_ptr(pq::PQgetvalue(raw, row, column)).to_string_lossy().into_owned())
        };
        Rows {
            rows: (0..rows).map(|row| (0..columns).map(|column| cell(row, column)).collect()).collect(),
            has_columns: columns > 0,
            affected: self.affected(),
        }
    }

    pub(super) fn error(&self, shard: &str) -> RemoteError {
        // SAFETY: as above.
        let field = |code: u8| unsafe {
            let text = pq::PQresultErrorField(self.0.as_ptr(), c_int::from(code));
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        };
        // SAFETY: as above.
        let whole = unsafe { CStr::from_ptr(pq::PQresultErrorMessage(self.0.as_ptr())) };
        RemoteError {
            shard: shard.to_owned(),
            sqlstate: field(b'C').map(|code| SqlState::parse(&code)),
            message: clean::message(&field(b'M').unwrap_or_else(|| whole.to_string_lossy().into_owned())),
            detail: field(b'D').map(|text| clean::more(&text)),
            hint: field(b'H').map(|text| clean::more(&text)).or_else(|| hint_of(field(b'C').as_deref())),
            constraint: field(b'n'),
        }
    }
}

impl Drop for QueryResult {
    fn drop(&mut self) {
        // SAFETY: this is the last use of the result.
        unsafe { pq::PQclear(self.0.as_ptr()) };
    }
}
