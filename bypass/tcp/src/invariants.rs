//! Conditions that hold between any two calls; tests check them after each event.

use crate::conn::{Conn, RetransmitTimer, State};
use crate::engine::Engine;
use crate::marked::Run;
use crate::sent::{LOST, NONE, RETRANSMITTED, SACKED};
use crate::seq::{after, before};
use alloc::format;
use alloc::string::String;

impl Engine {
    /// Checks every connection; the answer says what is wrong. For tests: it walks all memory.
    pub fn check_invariants(&self) -> Result<(), String> {
        let mut segments = 0;
        for index in 0..self.conns.len() as u32 {
            let conn = &self.conns[index];
            if conn.in_use {
                segments += self
                    .check_conn(conn)
                    .map_err(|what| format!("connection {index}: {what}"))?;
            }
        }
        if segments != self.cx.nodes.in_use() {
            return Err(format!(
                "{segments} segments are owned, {} exist",
                self.cx.nodes.in_use()
            ));
        }
        Ok(())
    }

    fn check_conn(&self, conn: &Conn) -> Result<usize, String> {
        let holds = |holds: bool, what: &str| {
            if holds {
                Ok(())
            } else {
                Err(String::from(what))
            }
        };
        holds(
            !after(conn.snd_una, conn.snd_nxt),
            "snd_una is beyond snd_nxt",
        )?;
        holds(
            !after(conn.rcv_acked, conn.rcv_nxt),
            "more acknowledged than received",
        )?;
        let [count, sacked, lost, resent] = self.count(conn)?;
        holds(
            count == conn.packets_out,
            "packets_out is not the number of segments",
        )?;
        if conn.has_sack {
            holds(sacked == conn.recovery.sacked_out, "sacked_out is wrong")?;
        }
        holds(lost == conn.recovery.lost_out, "lost_out is wrong")?;
        holds(resent == conn.recovery.retrans_out, "retrans_out is wrong")?;
        let timed = conn.retransmit != RetransmitTimer::Off;
        let loses = conn.packets_out > 0 && conn.state != State::Closed;
        holds(!loses || timed, "unacknowledged segments and no timer")?;
        let has_more = conn.unsent() > 0 || conn.fin_waits();
        let stalls = has_more && conn.packets_out == 0 && !conn.in_output;
        let may_send = matches!(
            conn.state,
            State::Established
                | State::CloseWait
                | State::FinWait1
                | State::Closing
                | State::LastAck
        );
        let waits = conn.settings.cork || conn.more_follows;
        holds(
            !(stalls && may_send) || timed || waits,
            "unsent bytes and nothing that sends them",
        )?;
        self.check_hints(conn)?;
        Ok(count as usize)
    }

    /// What is remembered of the scoreboard agrees with it.
    fn check_hints(&self, conn: &Conn) -> Result<(), String> {
        for run in conn.recovery.marked.runs(conn.snd_una) {
            let last = self.cx.nodes.get(run.last);
            if last.end != run.end || !last.is(SACKED) {
                return Err(format!("{run:?} does not end with a marked segment"));
            }
        }
        let from = conn.recovery.resend_from;
        let from = from.filter(|(seq, _)| !before(*seq, conn.snd_una));
        let mut index = conn.sent.head;
        while index != NONE {
            let node = self.cx.nodes.get(index);
            let is_inside = |run: Run| !before(node.seq, run.left) && !after(node.end, run.end);
            let mut runs = conn.recovery.marked.runs(conn.snd_una);
            if !node.is(SACKED) && runs.any(is_inside) {
                return Err(format!("{} is not marked", node.seq));
            }
            let waits = node.is(LOST) && !node.is(RETRANSMITTED);
            if waits && from.is_some_and(|(seq, _)| before(node.seq, seq)) {
                return Err(format!(
                    "{} waits to be sent again, and is passed over",
                    node.seq
                ));
            }
            index = node.next;
        }
        Ok(())
    }

    fn count(&self, conn: &Conn) -> Result<[u32; 4], String> {
        let mut counts = [0; 4];
        let mut index = conn.sent.head;
        let mut end = conn.snd_una;
        while index != NONE {
            let node = self.cx.nodes.get(index);
            if node.seq != end {
                return Err(format!("a hole in the scoreboard at {end}"));
            }
            end = node.end;
            let flags = [true, node.is(SACKED), node.is(LOST), node.is(RETRANSMITTED)];
            for (count, flag) in counts.iter_mut().zip(flags) {
                *count += u32::from(flag);
            }
            index = node.next;
        }
        Ok(counts)
    }
}
