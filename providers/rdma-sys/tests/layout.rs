//! The structures and constants against the C headers of this machine, by a C program made for the purpose. Without
//! the headers (libibverbs-dev, librdmacm-dev) or a compiler the comparison cannot be made, and the test prints NOT RUN.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::process::Command;

use rdma_sys::cm::*;
use rdma_sys::verbs::*;

/// Structures that later headers made longer (rdma-core 56). The functions that we call are of the older size: the library
/// keeps them for programs built before.
const GROWN: [&str; 1] = ["sizeof(struct ibv_port_attr)"];

macro_rules! layouts {
    ($list:ident; $($type:ident { $($field:ident $(= $c:literal)?),* })*) => {
        $(
            $list.push((format!("sizeof(struct {})", stringify!($type)), size_of::<$type>() as u64));
            $(
                #[allow(unused_mut, unused_assignments)]
                let mut c = stringify!($field);
                $(c = $c;)?
                $list.push((format!("offsetof(struct {}, {c})", stringify!($type)), offset_of!($type, $field) as u64));
            )*
        )*
    };
}

macro_rules! constants {
    ($list:ident; $($name:ident)*) => {
        $($list.push((stringify!($name).to_owned(), $name as u64));)*
    };
}

fn ours() -> Vec<(String, u64)> {
    let mut list = Vec::new();
    layouts! { list;
        ibv_context { ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat }
        ibv_context_ops { alloc_mw, bind_mw, dealloc_mw, poll_cq, req_notify_cq, post_srq_recv, post_send, post_recv }
        ibv_pd { context, handle }
        ibv_mr { context, pd, addr, length, handle, lkey, rkey }
        ibv_mw { context, pd, rkey, handle }
        ibv_cq { context, channel, cq_context, handle, cqe, comp_events_completed, async_events_completed }
        ibv_comp_channel { context, fd, refcnt }
        ibv_srq { context, srq_context, pd, handle, events_completed }
        ibv_qp { context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type, events_completed }
        ibv_device_attr { max_mr_size, max_qp, device_cap_flags, max_sge, max_qp_rd_atom, atomic_cap, max_mw,
            max_srq, phys_port_cnt }
        ibv_port_attr { state, max_mtu, active_mtu, gid_tbl_len, max_msg_sz, lid, phys_state, link_layer, flags }
        ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
        ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
        ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class }
        ibv_ah_attr { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num }
        ibv_qp_attr { qp_state, path_mtu, rq_psn, sq_psn, dest_qp_num, qp_access_flags, cap, ah_attr, alt_ah_attr,
            pkey_index, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry,
            alt_timeout, rate_limit }
        ibv_srq_attr { max_wr, max_sge, srq_limit }
        ibv_srq_init_attr { srq_context, attr }
        ibv_sge { addr, length, lkey }
        ibv_recv_wr { wr_id, next, sg_list, num_sge }
        ibv_mw_bind_info { mr, addr, length, mw_access_flags }
        ibv_mw_bind { wr_id, send_flags, bind_info }
        ibv_send_wr { wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, wr,
            remote_srqn = "qp_type.xrc.remote_srqn", bind_mw }
        ibv_wc { wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags, pkey_index, slid, sl }
        ibv_async_event { element, event_type }
        rdma_event_channel { fd }
        rdma_ib_addr { sgid, dgid, pkey }
        rdma_addr { src_addr, dst_addr, ibaddr = "addr.ibaddr" }
        rdma_route { addr, path_rec, num_paths }
        rdma_cm_id { verbs, channel, context, qp, route, ps, port_num, event, srq, pd, qp_type }
        rdma_conn_param { private_data, private_data_len, responder_resources, initiator_depth, flow_control,
            retry_count, rnr_retry_count, srq, qp_num }
        rdma_ud_param { private_data, private_data_len, ah_attr, qp_num, qkey }
        rdma_cm_event { id, listen_id, event, status, param }
    }
    for (c, rust) in [
        (
            "offsetof(struct ibv_send_wr, wr.rdma.rkey)",
            offset_of!(ibv_send_wr, wr) + offset_of!(ibv_rdma, rkey),
        ),
        (
            "offsetof(struct ibv_send_wr, wr.atomic.swap)",
            offset_of!(ibv_send_wr, wr) + offset_of!(ibv_atomic, swap),
        ),
        (
            "offsetof(struct ibv_send_wr, wr.atomic.rkey)",
            offset_of!(ibv_send_wr, wr) + offset_of!(ibv_atomic, rkey),
        ),
        ("sizeof(union ibv_gid)", size_of::<ibv_gid>()),
    ] {
        list.push((c.to_owned(), rust as u64));
    }
    constants! { list;
        IBV_WC_LOC_LEN_ERR IBV_WC_WR_FLUSH_ERR IBV_WC_REM_ACCESS_ERR IBV_WC_RNR_RETRY_EXC_ERR IBV_WC_GENERAL_ERR
        IBV_WC_TM_RNDV_INCOMPLETE IBV_WC_BIND_MW IBV_WC_RECV IBV_WC_RECV_RDMA_WITH_IMM IBV_WC_WITH_IMM IBV_WC_WITH_INV
        IBV_ACCESS_LOCAL_WRITE IBV_ACCESS_REMOTE_WRITE IBV_ACCESS_REMOTE_READ IBV_ACCESS_REMOTE_ATOMIC
        IBV_ACCESS_MW_BIND IBV_ACCESS_ON_DEMAND IBV_ACCESS_HUGETLB IBV_ACCESS_RELAXED_ORDERING
        IBV_EVENT_QP_FATAL IBV_EVENT_DEVICE_FATAL IBV_EVENT_PORT_ERR IBV_EVENT_SRQ_LIMIT_REACHED
        IBV_EVENT_QP_LAST_WQE_REACHED IBV_EVENT_WQ_FATAL
        IBV_QP_STATE IBV_QP_ACCESS_FLAGS IBV_QP_PKEY_INDEX IBV_QP_PORT IBV_QP_AV IBV_QP_PATH_MTU IBV_QP_TIMEOUT
        IBV_QP_RETRY_CNT IBV_QP_RNR_RETRY IBV_QP_MAX_QP_RD_ATOMIC IBV_QP_MIN_RNR_TIMER IBV_QP_MAX_DEST_RD_ATOMIC
        IBV_WR_SEND_WITH_IMM IBV_WR_RDMA_READ IBV_WR_ATOMIC_CMP_AND_SWP IBV_WR_ATOMIC_FETCH_AND_ADD IBV_WR_BIND_MW
        IBV_WR_SEND_WITH_INV IBV_SEND_FENCE IBV_SEND_SIGNALED IBV_SEND_SOLICITED IBV_SEND_INLINE
        IBV_QPS_INIT IBV_QPS_RTR IBV_QPS_RTS IBV_QPS_ERR IBV_QPT_RC IBV_MW_TYPE_1 IBV_MTU_4096 IBV_ATOMIC_GLOB
        IBV_DEVICE_MEM_WINDOW IBV_DEVICE_MEM_WINDOW_TYPE_2B IBV_DEVICE_SRQ_RESIZE IBV_PORT_ACTIVE IBV_SRQ_LIMIT
        IBV_LINK_LAYER_ETHERNET RDMA_PS_TCP RDMA_OPTION_ID_TOS RDMA_OPTION_ID_REUSEADDR RDMA_OPTION_ID_ACK_TIMEOUT
        RDMA_CM_EVENT_CONNECT_REQUEST RDMA_CM_EVENT_CONNECT_RESPONSE RDMA_CM_EVENT_REJECTED
        RDMA_CM_EVENT_ESTABLISHED RDMA_CM_EVENT_DEVICE_REMOVAL RDMA_CM_EVENT_TIMEWAIT_EXIT
    }
    list
}

#[test]
fn structures_and_constants_are_those_of_the_c_headers() {
    let ours = ours();
    let mut program = String::from(
        "#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n#include <stddef.h>\n#include <stdio.h>\n\
         int main(void) {\n",
    );
    for (index, (expression, _)) in ours.iter().enumerate() {
        let _ = writeln!(program, "printf(\"%d %llu\\n\", {index}, (unsigned long long)({expression}));");
    }
    program.push_str("return 0; }\n");
    let folder = tempfile::tempdir().expect("a folder for the C program");
    let (source, binary) = (folder.path().join("layout.c"), folder.path().join("layout"));
    std::fs::write(&source, "#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n").expect("write");
    let compile = |output: &std::path::Path, more: &[&str]| {
        Command::new("cc").args(more).arg("-o").arg(output).arg(&source).output()
    };
    match compile(&folder.path().join("headers.o"), &["-c"]) {
        Ok(tried) if tried.status.success() => {}
        tried => {
            let why =
                tried.map_or_else(|e| e.to_string(), |t| String::from_utf8_lossy(&t.stderr).into_owned());
            // DAT_REQUIRE_RDMA_HEADERS is what the test suite sets where it installed them.
            assert!(
                std::env::var_os("DAT_REQUIRE_RDMA_HEADERS").is_none(),
                "no headers to compare with: {why}"
            );
            eprintln!("NOT RUN: no C compiler or no headers (libibverbs-dev, librdmacm-dev): {why}");
            return;
        }
    }
    std::fs::write(&source, program).expect("write the C program");
    let compiled = compile(&binary, &[]).expect("cc starts");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let ran = Command::new(&binary).output().expect("the C program starts");
    let theirs: BTreeMap<usize, u64> = String::from_utf8_lossy(&ran.stdout)
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(index, value)| (index.parse().expect("an index"), value.parse().expect("a value")))
        .collect();
    let wrong: Vec<String> = ours
        .iter()
        .enumerate()
        .filter(|(index, (expression, ours))| match theirs.get(index) {
            Some(theirs) => theirs != ours && !(GROWN.contains(&expression.as_str()) && theirs > ours),
            None => true,
        })
        .map(|(index, (expression, ours))| format!("{expression}: C {:?}, here {ours}", theirs.get(&index)))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(theirs.len(), ours.len());
    eprintln!("{} sizes, offsets and constants compared", ours.len());
}
