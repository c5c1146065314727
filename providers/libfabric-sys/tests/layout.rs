//! Sizes and offsets against C: a small program is compiled with the headers installed and prints its own.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::process::Command;

use libfabric_sys::ops::*;
use libfabric_sys::types::*;

/// Rows of (C expression, value here). `type` is spelt differently here.
macro_rules! rows {
    ($($c:literal $name:ident { $($field:ident),* $(,)? })*) => {{
        let mut rows: Vec<(String, usize)> = Vec::new();
        $(
            rows.push((format!("sizeof({})", $c), size_of::<$name>()));
            $(rows.push((
                format!("offsetof({}, {})", $c, stringify!($field).trim_end_matches('_')),
                offset_of!($name, $field),
            ));)*
        )*
        rows
    }};
}

fn rows() -> Vec<(String, usize)> {
    rows! {
        "struct fid" fid { fclass, context, ops }
        "struct fid_fabric" fid_fabric { fid, ops, api_version }
        "struct fid_domain" fid_domain { fid, ops, mr }
        "struct fid_eq" fid_eq { fid, ops }
        "struct fid_cq" fid_cq { fid, ops }
        "struct fid_av" fid_av { fid, ops }
        "struct fid_mr" fid_mr { fid, mem_desc, key }
        "struct fid_ep" fid_ep { fid, ops, cm, msg, rma, tagged, atomic, collective }
        "struct fid_pep" fid_pep { fid, ops, cm }
        "struct fi_tx_attr" fi_tx_attr {
            caps, mode, op_flags, msg_order, comp_order, inject_size, size, iov_limit, rma_iov_limit, tclass
        }
        "struct fi_rx_attr" fi_rx_attr {
            caps, mode, op_flags, msg_order, comp_order, total_buffered_recv, size, iov_limit
        }
        "struct fi_ep_attr" fi_ep_attr {
            type_, protocol, protocol_version, max_msg_size, msg_prefix_size, max_order_raw_size,
            max_order_war_size, max_order_waw_size, mem_tag_format, tx_ctx_cnt, rx_ctx_cnt, auth_key_size, auth_key
        }
        "struct fi_domain_attr" fi_domain_attr {
            domain, name, threading, control_progress, data_progress, resource_mgmt, av_type, mr_mode, mr_key_size,
            cq_data_size, cq_cnt, ep_cnt, tx_ctx_cnt, rx_ctx_cnt, max_ep_tx_ctx, max_ep_rx_ctx, max_ep_stx_ctx,
            max_ep_srx_ctx, cntr_cnt, mr_iov_limit, caps, mode, auth_key, auth_key_size, max_err_data, mr_cnt, tclass
        }
        "struct fi_fabric_attr" fi_fabric_attr { fabric, name, prov_name, prov_version, api_version }
        "struct fi_info" fi_info {
            next, caps, mode, addr_format, src_addrlen, dest_addrlen, src_addr, dest_addr, handle, tx_attr, rx_attr,
            ep_attr, domain_attr, fabric_attr, nic
        }
        "struct fi_eq_attr" fi_eq_attr { size, flags, wait_obj, signaling_vector, wait_set }
        "struct fi_cq_attr" fi_cq_attr { size, flags, format, wait_obj, signaling_vector, wait_cond, wait_set }
        "struct fi_wait_pollfd" fi_wait_pollfd { change_index, nfds, fd }
        "struct fi_av_attr" fi_av_attr { type_, rx_ctx_bits, count, ep_per_node, name, map_addr, flags }
        "struct fi_eq_cm_entry" fi_eq_cm_entry { fid, info, data }
        "struct fi_eq_err_entry" fi_eq_err_entry {
            fid, context, data, err, prov_errno, err_data, err_data_size
        }
        "struct fi_cq_data_entry" fi_cq_data_entry { op_context, flags, len, buf, data }
        "struct fi_cq_tagged_entry" fi_cq_tagged_entry { op_context, flags, len, buf, data, tag }
        "struct fi_msg" fi_msg { msg_iov, desc, iov_count, addr, context, data }
        "struct fi_msg_tagged" fi_msg_tagged { msg_iov, desc, iov_count, addr, tag, ignore, context, data }
        "struct fi_rma_iov" fi_rma_iov { addr, len, key }
        "struct fi_msg_rma" fi_msg_rma { msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, context, data }
        "struct fi_ioc" fi_ioc { addr, count }
        "struct fi_rma_ioc" fi_rma_ioc { addr, count, key }
        "struct fi_msg_atomic" fi_msg_atomic {
            msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, datatype, op, context, data
        }
        "struct fi_atomic_attr" fi_atomic_attr { count, size }
        "struct fi_context2" fi_context2 { internal }
        "struct fi_mr_raw_attr" fi_mr_raw_attr { flags, base_addr, raw_key, key_size }
        "struct fi_ops" fi_ops { size, close, bind, control }
        "struct fi_ops_fabric" fi_ops_fabric { size, domain, passive_ep, eq_open, trywait }
        "struct fi_ops_domain" fi_ops_domain { size, av_open, cq_open, endpoint, query_atomic }
        "struct fi_ops_mr" fi_ops_mr { size, reg }
        "struct fi_ops_av" fi_ops_av { size, insert, remove }
        "struct fi_ops_eq" fi_ops_eq { size, read, readerr, strerror }
        "struct fi_ops_cq" fi_ops_cq { size, read, readerr, strerror }
        "struct fi_ops_ep" fi_ops_ep { size, cancel, getopt }
        "struct fi_ops_cm" fi_ops_cm { size, getname, connect, listen, accept, reject, shutdown }
        "struct fi_ops_msg" fi_ops_msg { size, recvmsg, sendmsg, injectdata }
        "struct fi_ops_tagged" fi_ops_tagged { size, recvmsg, sendmsg, injectdata }
        "struct fi_ops_rma" fi_ops_rma { size, readmsg, writemsg, injectdata }
        "struct fi_ops_atomic" fi_ops_atomic { size, readwritemsg, compwritemsg }
    }
}

/// Later releases append to these; only what is before must agree.
const MAY_GROW: &[&str] = &[
    "sizeof(struct fi_domain_attr)",
    "sizeof(struct fi_ops)",
    "sizeof(struct fi_ops_fabric)",
    "sizeof(struct fi_ops_domain)",
    "sizeof(struct fi_ops_av)",
];

#[test]
fn sizes_and_offsets_are_those_of_c() {
    let rows = rows();
    let Some(of_c) = ask_c(&rows) else {
        println!("NOT RUN: {} comparisons, for want of libfabric's headers (libfabric-dev)", rows.len());
        assert!(
            std::env::var_os("DAT_REQUIRE_LIBFABRIC").is_none(),
            "DAT_REQUIRE_LIBFABRIC is set, and there are no headers to compare with"
        );
        return;
    };
    let mut wrong = Vec::new();
    for (expression, here) in &rows {
        let there = of_c[expression];
        let grown = MAY_GROW.contains(&expression.as_str()) && there >= *here;
        if there != *here && !grown {
            wrong.push(format!("{expression}: {here} here, {there} in C"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{} sizes and offsets compared", rows.len());
}

/// `None`: there are no headers.
fn ask_c(rows: &[(String, usize)]) -> Option<BTreeMap<String, usize>> {
    let folder = tempfile::tempdir().expect("a folder for the C program");
    let source = folder.path().join("layout.c");
    let program = folder.path().join("layout");
    let mut text = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <rdma/fabric.h>\n#include <rdma/fi_atomic.h>\n\
         #include <rdma/fi_cm.h>\n#include <rdma/fi_domain.h>\n#include <rdma/fi_endpoint.h>\n\
         #include <rdma/fi_eq.h>\n#include <rdma/fi_rma.h>\n#include <rdma/fi_tagged.h>\nint main(void) {\n",
    );
    for (expression, _) in rows {
        writeln!(text, "printf(\"%s=%zu\\n\", \"{expression}\", (size_t){expression});")
            .expect("to a string");
    }
    text.push_str("return 0; }\n");
    std::fs::write(&source, text).expect("the C program");
    let probe = Command::new("cc")
        .args(["-E", "-x", "c", "-include", "rdma/fabric.h", "/dev/null"])
        .output()
        .expect("a C compiler; install gcc");
    if !probe.status.success() {
        return None;
    }
    let compiled = Command::new("cc").arg(&source).arg("-o").arg(&program).output().expect("a C compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(&program).output().expect("the compiled program");
    let text = String::from_utf8(output.stdout).expect("text");
    let pairs = text.lines().filter_map(|line| line.rsplit_once('='));
    Some(pairs.map(|(name, value)| (name.to_owned(), value.parse().expect("a number"))).collect())
}
