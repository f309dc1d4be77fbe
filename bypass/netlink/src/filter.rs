//! Whether the packet filter of a network namespace inspects incoming packets (nf_tables over
//! nfnetlink, linux/netfilter/nf_tables.h; `iptables-nft` uses it too).

use bypass_sys::kernel::Result;

use crate::message::{attributes, Request};
use crate::socket::Socket;

const NETLINK_NETFILTER: i32 = 12;
/// NFNL_SUBSYS_NFTABLES in the upper byte.
const SUBSYSTEM: u16 = 10 << 8;
const GET_CHAIN: u16 = 4;
const GET_RULE: u16 = 7;
// Attributes of a chain and of its hook, and of a rule.
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const HOOK_NUMBER: u16 = 1;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
/// NF_INET_PRE_ROUTING and NF_INET_LOCAL_IN.
const INCOMING: [u32; 2] = [0, 1];
/// NF_DROP.
const DROP: u32 = 0;
/// Bytes of `struct nfgenmsg`: family, version, resource.
const FIXED: usize = 4;
const NETDEV: u8 = 5;

/// Chains through which packets for this host pass and that have rules or a drop policy, as
/// `table chain`.
pub fn incoming_chains() -> Result<Vec<String>> {
    let mut socket = Socket::of(NETLINK_NETFILTER, 0)?;
    let (mut chains, mut busy) = (Vec::new(), Vec::new());
    let request = |kind| Request::new(SUBSYSTEM | kind, libc::NLM_F_DUMP, &[0; FIXED]);
    socket.dump(|| request(GET_CHAIN), &mut |message| {
        let (Some(family), Some(rest)) = (message.body.first(), message.body.get(FIXED..)) else {
            return;
        };
        let value = |kind| attributes(rest).find(|(found, _)| *found == kind);
        let hook = value(CHAIN_HOOK).and_then(|(_, hook)| {
            let number = attributes(hook).find(|(kind, _)| *kind == HOOK_NUMBER);
            number.map(|(_, number)| big_endian(number))
        });
        let is_incoming = hook.is_some_and(|hook| INCOMING.contains(&hook) || *family == NETDEV);
        if is_incoming {
            let name = name_of(value(CHAIN_TABLE), value(CHAIN_NAME));
            let drops = value(CHAIN_POLICY).is_some_and(|(_, policy)| big_endian(policy) == DROP);
            busy.extend(drops.then(|| name.clone()));
            chains.push(name);
        }
    })?;
    if chains.is_empty() {
        return Ok(chains);
    }
    socket.dump(|| request(GET_RULE), &mut |message| {
        let rest = message.body.get(FIXED..).unwrap_or_default();
        let value = |kind| attributes(rest).find(|(found, _)| *found == kind);
        busy.push(name_of(value(RULE_TABLE), value(RULE_CHAIN)));
    })?;
    chains.retain(|chain| busy.contains(chain));
    chains.sort();
    chains.dedup();
    Ok(chains)
}

fn name_of(table: Option<(u16, &[u8])>, chain: Option<(u16, &[u8])>) -> String {
    let text = |value: Option<(u16, &[u8])>| {
        let bytes = value.map_or(&[][..], |(_, bytes)| bytes);
        let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    };
    format!("{} {}", text(table), text(chain))
}

/// Numbers of nf_tables are big-endian.
fn big_endian(bytes: &[u8]) -> u32 {
    let four = bytes.get(..4).and_then(|four| four.try_into().ok());
    four.map_or(u32::MAX, u32::from_be_bytes)
}
