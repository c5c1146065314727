//! `include/dat_plugin.h` against the Rust tables: a C program with the size of every structure, the offset of every
//! field and the value of every constant as Rust has them, which compiles only if C has the same.

use std::fmt::{Debug, Write as _};
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use crate::abi::*;
use crate::ops::*;

/// Assertions for a structure. The pattern names every field, so that a new one is not forgotten here.
macro_rules! layout {
    ($out:ident, $($rust:ident as $c:literal { $($field:ident $(as $c_field:literal)?),* $(,)? })*) => {$(
        let _ = |$rust { $($field: _),* }: $rust| {};
        let _ = writeln!($out, "_Static_assert(sizeof(struct datp_{}) == {}, \"size of {0}\");", $c, size_of::<$rust>());
        let _ = writeln!(
            $out,
            "_Static_assert(_Alignof(struct datp_{}) == {}, \"alignment of {0}\");",
            $c,
            align_of::<$rust>()
        );
        $(
            #[allow(unused_mut, unused_assignments, reason = "few fields have another name in C")]
            let name = { let mut name = stringify!($field); $(name = $c_field;)? name };
            let at = offset_of!($rust, $field);
            let _ = writeln!(
                $out,
                "_Static_assert(offsetof(struct datp_{}, {name}) == {at}, \"{0}.{name}\");",
                $c
            );
        )*
    )*};
}

macro_rules! constants {
    ($out:ident, $($rust:ident as $c:literal),*) => {$(
        for (name, value) in $rust::ALL {
            let _ = writeln!($out, "_Static_assert({}_{name} == {}, \"{0}_{name}\");", $c, value.0);
        }
        let _ = writeln!($out, "_Static_assert(sizeof(datp_{}) == {}, \"{0}\");", $c[5..].to_lowercase(), size_of::<$rust>());
    )*};
}

fn program() -> String {
    let mut out = String::from("#include \"dat_plugin.h\"\n");
    layout! { out,
        Segment as "segment" { addr, len, lkey }
        Request as "request" {
            token, segs, nsegs, opcode, flags, total, remote_addr, rkey, remote_len, imm, reserved,
        }
        AtomicRequest as "atomic_request" { token, opcode, flags, rkey, remote_addr, operand, swap, sink }
        BindRequest as "bind_request" { token, window, addr, len, lkey, access, flags, reserved }
        RecvRequest as "recv_request" { token, segs, nsegs, flags, reserved, total }
        Completion as "completion" { token, user, status, length, flags, imm }
        SockAddr as "sock_addr" { family, port, scope, bytes }
        Event as "event" { kind, qos, user, request, port, peer_port, peer, data_len, data }
        DeviceAttr as "device_attr" {
            caps, address, max_channels, max_queues, max_queue_depth, max_regions, max_requests_per_channel,
            max_recvs_per_channel, max_segments, max_read_segments, max_write_segments, max_reads_per_channel,
            max_message, max_rdma, max_region, max_private_data, qos, alignment, max_srqs, max_srq_depth,
            max_srq_segments, max_windows, reserved,
        }
        ChannelAttr as "channel_attr" {
            user, send_user, recv_user, domain, max_requests, max_recvs, max_request_segments,
            max_recv_segments, max_reads_out, max_reads_in, reserved, max_message,
        }
        SrqAttr as "srq_attr" { user, depth, max_segments, domain, reserved }
        Keys as "keys" { lkey, rkey }
        Block as "block" { addr, len, handle }
        Str as "str" { ptr, len }
        Message as "message" { ptr, capacity, len }
        Param as "param" { key, value }
        RawConfig as "config" { ia_name, params, count }
        RawConnect as "connect" { addr, port, data, data_len, qos }
        HostOps as "host_ops" { size, minor, log }
        ProbeSink as "probe_sink" { list, push }
        ProviderOps as "provider_ops" { size, reserved, init, open }
        DeviceOps as "device_ops" {
            size, reserved, poll_events, event_fd, attr, open_queue, open_channel, listen,
            register as "register_", register_dmabuf, deregister, alloc, free, reject, open_srq, open_window, close_window,
            describe, close,
        }
        ChannelOps as "channel_ops" {
            size, reserved, post, post_recv, post_list, post_recv_list, settle, post_atomic, bind, connect, accept,
            disconnect, local_port, describe, close,
        }
        QueueOps as "queue_ops" { size, reserved, poll, arm, disarm, fd, close }
        ListenerOps as "listener_ops" { size, reserved, port, close }
        SrqOps as "srq_ops" { size, reserved, post_recv, arm, resize, close }
        ProbeOps as "probe_ops" { size, reserved, probe }
        CModule as "module" {
            size, abi_major, abi_minor, reserved, name, version, description, provider, device, channel, queue,
            srq, listener, probe,
        }
    }
    crate::elf_note::layout(&mut out);
    constants! { out,
        Status as "DATP_STATUS", Opcode as "DATP_OPCODE", PostFlag as "DATP_POST_FLAG",
        CompletionStatus as "DATP_COMPLETION_STATUS", CompletionFlag as "DATP_COMPLETION_FLAG",
        Access as "DATP_ACCESS", Caps as "DATP_CAPS", EventKind as "DATP_EVENT_KIND",
        RejectReason as "DATP_REJECT_REASON", ChannelFlag as "DATP_CHANNEL_FLAG"
    }
    let mut number = |name: &str, value: &dyn Debug| {
        let _ = writeln!(out, "_Static_assert(DATP_{name} == {value:?}, \"{name}\");");
    };
    number("ABI_MAJOR", &crate::ABI_MAJOR);
    number("ABI_MINOR", &crate::ABI_MINOR);
    number("MAX_PRIVATE_DATA", &MAX_PRIVATE_DATA);
    out
}

/// Compiles a program against the header; `None` without a C compiler.
fn compiles(text: &str) -> Option<Result<(), String>> {
    let folder = std::env::temp_dir().join(format!("dat-layout-{}-{}", std::process::id(), text.len()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("layout.c");
    std::fs::write(&file, text).expect("written");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    let ran = Command::new(std::env::var_os("CC").unwrap_or("cc".into()))
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"])
        .args([&include, &file])
        .output();
    std::fs::remove_dir_all(&folder).expect("removed");
    let output = match ran {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        ran => ran.expect("the compiler runs"),
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Some(if output.status.success() { Ok(()) } else { Err(said) })
}

#[test]
#[cfg_attr(feature = "abi-minor-0", ignore = "the header is of the current version")]
fn the_c_header_has_the_layout_of_the_rust_tables() {
    let text = program();
    let Some(outcome) = compiles(&text) else {
        eprintln!("NOT RUN: the_c_header_has_the_layout_of_the_rust_tables: there is no C compiler");
        return;
    };
    outcome.unwrap_or_else(|said| panic!("{said}"));
    assert!(text.lines().count() > 250, "most of the header is compared");
    // That a difference is noticed at all.
    let wrong =
        text.replace("offsetof(struct datp_request, rkey) == ", "offsetof(struct datp_request, rkey) == 1");
    let said = compiles(&wrong).expect("there is a compiler").expect_err("another offset");
    assert!(said.contains("request.rkey"), "{said}");
}
