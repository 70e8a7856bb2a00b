//! COPY from one shard straight into another: buffers are forwarded untouched and
//! nothing is collected.

use super::connection::{Connection, Status};
use super::error::RemoteError;
use super::wait::{self, Ready};
use pq_sys as pq;
use std::ffi::c_char;
use std::time::{Duration, Instant};

/// Bytes handed to libpq before the target is waited for. Waiting earlier makes
/// the two servers take turns; Citus measured 8 MB as the best.
const UNSENT_LIMIT: usize = 8 << 20;

/// What a pipe has moved.
#[derive(Clone, Copy, Debug, Default)]
pub struct Copied {
    pub rows: u64,
    pub bytes: u64,
}

/// Runs `out` (COPY .. TO STDOUT) on the source and `into` (COPY .. FROM STDIN) on
/// the target, and carries either side's failure to the other. Gives up when
/// neither side makes progress for `patience`. After an error both sessions may be
/// in the middle of something: the caller closes them.
pub fn pipe(
    source: &mut Connection,
    out: &str,
    target: &mut Connection,
    into: &str,
    patience: Duration,
) -> Result<Copied, RemoteError> {
    start(source, out, patience)?;
    start(target, into, patience)?;
    match forward(source, target, patience) {
        Ok(Sent { rows: sent, bytes }) => {
            let rows = end(target, None, patience)?;
            if rows != sent {
                let message = format!("{sent} rows were copied and {rows} arrived");
                return Err(RemoteError::of_data(target.shard(), message));
            }
            Ok(Copied { rows, bytes })
        }
        Err(Broken::Source(error)) => {
            // Without this the target would take the end of the connection, or
            // worse an ordinary end, for the end of the data.
            let _ = end(target, Some("the source failed"), patience);
            Err(error)
        }
        Err(Broken::Target(error)) => Err(error),
    }
}

/// What the source has given away.
struct Sent {
    rows: u64,
    bytes: u64,
}

enum Broken {
    Source(RemoteError),
    Target(RemoteError),
}

fn start(connection: &mut Connection, sql: &str, patience: Duration) -> Result<(), RemoteError> {
    connection.send(sql)?;
    match connection.next_result(patience)? {
        Some(result) => match result.status() {
            Status::Copy => Ok(()),
            Status::Failed => {
                let error = result.error(connection.shard());
                drop(result);
                while connection.next_result(patience)?.is_some() {}
                Err(error)
            }
            Status::Rows => Err(RemoteError::connection(connection.shard(), "no COPY was started")),
        },
        None => Err(RemoteError::connection(connection.shard(), "no answer to COPY")),
    }
}

/// Bytes that are collected into one message to the target: libpq hands out a message
/// for each row, and each message costs both it and the target.
const MESSAGE: usize = 32 << 10;

fn forward(source: &mut Connection, target: &mut Connection, patience: Duration) -> Result<Sent, Broken> {
    let mut bytes = 0_u64;
    let mut unsent = 0_usize;
    let mut message: Vec<u8> = Vec::with_capacity(2 * MESSAGE);
    loop {
        let mut buffer: *mut c_char = std::ptr::null_mut();
        // SAFETY: a live connection in COPY state; the buffer is libpq's, of the length
        // that it returns, and is freed once.
        let length = unsafe {
            let length = pq::PQgetCopyData(source.raw(), &mut buffer, 1);
            if let Ok(filled @ 1..) = usize::try_from(length) {
                message.extend_from_slice(std::slice::from_raw_parts(buffer.cast::<u8>(), filled));
                pq::PQfreemem(buffer.cast());
            }
            length
        };
        if message.len() >= MESSAGE || length <= 0 {
            put(target, &mut message, patience).map_err(Broken::Target)?;
        }
        match length {
            1.. => {
                let length = usize::try_from(length).unwrap_or(0);
                bytes += length as u64;
                unsent += length;
                if unsent >= UNSENT_LIMIT {
                    flush(target, patience).map_err(Broken::Target)?;
                    unsent = 0;
                }
            }
            0 => wait_for_data(source, target, patience)?,
            -1 => {
                return match source.finish() {
                    Ok(done) => Ok(Sent { rows: done.affected, bytes }),
                    Err(error) => Err(Broken::Source(error)),
                };
            }
            _ => return Err(Broken::Source(source.last_error())),
        }
    }
}

/// Hands what is collected to libpq. Where one message ends and the next begins means
/// nothing to COPY.
fn put(target: &mut Connection, message: &mut Vec<u8>, patience: Duration) -> Result<(), RemoteError> {
    if message.is_empty() {
        return Ok(());
    }
    let length = i32::try_from(message.len())
        .map_err(|_| RemoteError::connection(target.shard(), "a row of more than 2 GB"))?;
    // SAFETY: a live connection in COPY state; libpq copies the bytes.
    if unsafe { pq::PQputCopyData(target.raw(), message.as_ptr().cast(), length) } != 1 {
        return Err(target_error(target, patience));
    }
    message.clear();
    // One long row does not keep its memory for the rest of the copy.
    message.shrink_to(2 * MESSAGE);
    Ok(())
}

/// Nothing to read from the source: meanwhile the target takes what is unsent.
fn wait_for_data(source: &mut Connection, target: &mut Connection, patience: Duration) -> Result<(), Broken> {
    // SAFETY (all of this function): live connections.
    let unsent = match unsafe { pq::PQflush(target.raw()) } {
        0 => false,
        1 => true,
        _ => return Err(Broken::Target(target_error(target, patience))),
    };
    let deadline = Instant::now() + patience;
    let ready = if unsent {
        wait::for_any(&[(source.socket(), Ready::Read), (target.socket(), Ready::ReadOrWrite)], deadline)
    } else {
        wait::for_socket(source.socket(), Ready::Read, deadline)
    };
    if !ready {
        let message = format!("the copy made no progress for {} s", patience.as_secs_f64());
        return Err(Broken::Source(RemoteError::connection(source.shard(), message)));
    }
    if unsafe { pq::PQconsumeInput(source.raw()) } == 0 {
        return Err(Broken::Source(source.last_error()));
    }
    if unsent && unsafe { pq::PQconsumeInput(target.raw()) } == 0 {
        return Err(Broken::Target(target.last_error()));
    }
    Ok(())
}

/// Sends everything that libpq holds for the target.
fn flush(target: &mut Connection, patience: Duration) -> Result<(), RemoteError> {
    let deadline = Instant::now() + patience;
    loop {
        // SAFETY: a live connection.
        match unsafe { pq::PQflush(target.raw()) } {
            0 => return Ok(()),
            1 => {
                if !wait::for_socket(target.socket(), Ready::ReadOrWrite, deadline) {
                    let message = format!("took no data for {} s", patience.as_secs_f64());
                    return Err(RemoteError::connection(target.shard(), message));
                }
                // A target that fails says so while it is written to.
                // SAFETY: a live connection.
                if unsafe { pq::PQconsumeInput(target.raw()) } == 0 {
                    return Err(target.last_error());
                }
            }
            _ => return Err(target.last_error()),
        }
    }
}

/// Ends the target's COPY, as complete or with the reason why it is not; the rows.
fn end(target: &mut Connection, failure: Option<&str>, patience: Duration) -> Result<u64, RemoteError> {
    let text = failure.map(super::connection::to_c);
    let message = text.as_ref().map_or(std::ptr::null(), |t| t.as_ptr());
    // SAFETY: a live connection in COPY IN state.
    if unsafe { pq::PQputCopyEnd(target.raw(), message) } == -1 {
        return Err(target_error(target, patience));
    }
    let mut rows = 0;
    let mut failed = None;
    while let Some(result) = target.next_result(patience)? {
        match result.status() {
            Status::Failed => failed = Some(result.error(target.shard())),
            Status::Rows | Status::Copy => rows = result.affected(),
        }
    }
    failed.map_or(Ok(rows), Err)
}

/// What the target has to say after it refused data.
fn target_error(target: &mut Connection, patience: Duration) -> RemoteError {
    match target.next_result(patience) {
        Ok(Some(result)) if matches!(result.status(), Status::Failed) => result.error(target.shard()),
        Ok(_) | Err(_) => target.last_error(),
    }
}
