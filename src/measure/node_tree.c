/* Reads hwloc's tree. node_near.c chooses the NIC of each GPU. */
#include "measure/node_tree.h"

#include "measure/node_near.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { NVIDIA = 0x10de, AMD = 0x1002, AMAZON = 0x1d0f };

/* ---- sockets and memory ---- */

/* NULL for socket 0 of a machine that shows none: some virtual ones. */
static hwloc_obj_t socket_at(hwloc_topology_t t, int i) {
    return hwloc_get_obj_by_type(t, HWLOC_OBJ_PACKAGE, (unsigned)i);
}

static ndp_node_socket read_socket(hwloc_topology_t t, hwloc_const_cpuset_t cores) {
    ndp_node_socket s = {.threads = hwloc_get_nbobjs_inside_cpuset_by_type(t, cores, HWLOC_OBJ_PU)};
    s.cores = hwloc_get_nbobjs_inside_cpuset_by_type(t, cores, HWLOC_OBJ_CORE);
    if (s.cores <= 0)
        s.cores = s.threads; /* cores are hidden */
    return s;
}

static ndp_status read_sockets(hwloc_topology_t t, ndp_node_tree *out) {
    int n = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PACKAGE);
    if (n > NDP_MOST_SOCKETS)
        return NDP_FAIL(NDP_ENOTSUP, "the node has %d sockets; at most %d are supported", n, NDP_MOST_SOCKETS);
    out->n_sockets = n > 0 ? n : 1;
    for (int i = 0; i < out->n_sockets; i++) {
        hwloc_obj_t socket = socket_at(t, i);
        out->sockets[i] = read_socket(t, (socket ? socket : hwloc_get_root_obj(t))->cpuset);
    }
    return NDP_OK;
}

/* Whose cores include all that this object, a device or a memory, is near to; -1: several or none. */
static int socket_of(hwloc_topology_t t, const ndp_node_tree *tree, hwloc_obj_t o) {
    if (tree->n_sockets == 1)
        return 0;
    hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(t, o);
    for (int i = 0; place && i < tree->n_sockets; i++)
        if (!hwloc_bitmap_iszero(place->cpuset) && hwloc_bitmap_isincluded(place->cpuset, socket_at(t, i)->cpuset))
            return i;
    return -1;
}

static void read_memory(hwloc_topology_t t, ndp_node_tree *out) {
    for (hwloc_obj_t numa = NULL; (numa = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, numa));) {
        double bytes = (double)numa->attr->numanode.local_memory;
        int socket = socket_of(t, out, numa);
        out->numa_nodes++;
        out->memory_bytes += bytes;
        if (socket >= 0) {
            out->sockets[socket].numa_nodes++;
            out->sockets[socket].memory_bytes += bytes;
        }
    }
}

/* ---- devices ---- */

static bool is_of(hwloc_obj_t device, const char *subtype) {
    return device->subtype && strcmp(device->subtype, subtype) == 0;
}

/* The first device of the system, of a PCI device, that has one of these types. */
static hwloc_obj_t device_of(hwloc_obj_t pci, hwloc_obj_osdev_type_t type) {
    for (hwloc_obj_t o = pci->io_first_child; o; o = o->next_sibling)
        if (o->type == HWLOC_OBJ_OS_DEVICE && o->attr->osdev.type == type)
            return o;
    return NULL;
}

/* The same that a library of GPUs lists; the order is that of preference. */
static hwloc_obj_t listed_gpu(hwloc_obj_t pci) {
    static const char *const libraries[] = {"CUDA", "RSMI", "NVML"};
    for (int i = 0; i < NDP_COUNT(libraries); i++)
        for (hwloc_obj_t o = pci->io_first_child; o; o = o->next_sibling)
            if (o->type == HWLOC_OBJ_OS_DEVICE && is_of(o, libraries[i]))
                return o;
    return NULL;
}

/* VGA, 3D and other displays; accelerators, as which some GPUs without a display are listed. */
static bool is_gpu_class(const struct hwloc_pcidev_attr_s *a) {
    static const int classes[] = {0x0300, 0x0302, 0x0380, 0x1200};
    bool found = false;
    for (int i = 0; i < NDP_COUNT(classes); i++)
        found = found || a->class_id == classes[i];
    return found && (a->vendor_id == NVIDIA || a->vendor_id == AMD);
}

static void copy_text(char *out, size_t size, const char *text) { snprintf(out, size, "%s", text ? text : ""); }

static void put_address(char out[16], hwloc_obj_t pci) {
    const struct hwloc_pcidev_attr_s *a = &pci->attr->pcidev;
    snprintf(out, 16, "%04x:%02x:%02x.%x", a->domain & 0xffffu, a->bus, a->dev, a->func & 0xfu);
}

/* What the library calls it, or else the list of PCI devices. */
static const char *model_of(hwloc_obj_t pci, hwloc_obj_t device) {
    const char *model = device ? hwloc_obj_get_info_by_name(device, "GPUModel") : NULL;
    if (!model && pci)
        model = hwloc_obj_get_info_by_name(pci, "PCIDevice");
    return model ? model : pci ? pci->name : NULL;
}

/* `pci` or `device` may be NULL. */
static ndp_status add_gpu(hwloc_topology_t t, hwloc_obj_t pci, hwloc_obj_t device, ndp_node_tree *out,
                          hwloc_obj_t *at) {
    if (out->n_gpus == NDP_MOST_NODE_GPUS)
        return NDP_FAIL(NDP_ENOTSUP, "the node has more than %d GPUs, which are not supported", NDP_MOST_NODE_GPUS);
    ndp_node_gpu g = {.nic = -1, .path = NDP_NODE_PATH_NODE, .socket = socket_of(t, out, pci ? pci : device)};
    copy_text(g.model, sizeof g.model, model_of(pci, device));
    copy_text(g.name, sizeof g.name, device ? device->name : NULL);
    if (pci) {
        put_address(g.address, pci);
        g.pci_bandwidth = 1e9 * (double)pci->attr->pcidev.linkspeed;
    }
    at[out->n_gpus] = pci ? pci : device;
    out->gpus[out->n_gpus++] = g;
    return NDP_OK;
}

/* InfiniBand has addresses of 20 bytes, "00:00:...", or no device of the network at all. */
static const char *kind_of(hwloc_obj_t pci, hwloc_obj_t fabric, hwloc_obj_t network) {
    enum { ETHERNET_ADDRESS = 6 * 3 - 1 };
    const char *address = network ? hwloc_obj_get_info_by_name(network, "Address") : NULL;
    if (fabric && pci->attr->pcidev.vendor_id == AMAZON)
        return "efa";
    if (network && is_of(network, "Slingshot"))
        return "slingshot";
    if (!fabric)
        return "ethernet";
    return address && strlen(address) <= ETHERNET_ADDRESS ? "roce" : "infiniband";
}

static ndp_status add_nic(hwloc_topology_t t, hwloc_obj_t pci, ndp_node_tree *out, hwloc_obj_t *at) {
    hwloc_obj_t fabric = device_of(pci, HWLOC_OBJ_OSDEV_OPENFABRICS);
    hwloc_obj_t network = device_of(pci, HWLOC_OBJ_OSDEV_NETWORK);
    if (!fabric && !network)
        return NDP_OK;
    if (out->n_nics == NDP_MOST_NODE_NICS)
        return NDP_FAIL(NDP_ENOTSUP, "the node has more than %d NICs, which are not supported", NDP_MOST_NODE_NICS);
    ndp_node_nic n = {.kind = kind_of(pci, fabric, network), .socket = socket_of(t, out, pci)};
    copy_text(n.name, sizeof n.name, (fabric ? fabric : network)->name);
    put_address(n.address, pci);
    n.pci_bandwidth = 1e9 * (double)pci->attr->pcidev.linkspeed;
    at[out->n_nics] = pci;
    out->nics[out->n_nics++] = n;
    return NDP_OK;
}

static bool is_on_pci(hwloc_obj_t o) {
    while (o && o->type != HWLOC_OBJ_PCI_DEVICE)
        o = o->parent;
    return o != NULL;
}

static ndp_status read_devices(hwloc_topology_t t, ndp_node_tree *out) {
    hwloc_obj_t gpus[NDP_MOST_NODE_GPUS], nics[NDP_MOST_NODE_NICS];
    for (hwloc_obj_t pci = NULL; (pci = hwloc_get_next_pcidev(t, pci));) {
        hwloc_obj_t listed = listed_gpu(pci);
        if (listed || is_gpu_class(&pci->attr->pcidev))
            NDP_TRY(add_gpu(t, pci, listed, out, gpus));
        else
            NDP_TRY(add_nic(t, pci, out, nics));
    }
    /* NVML lists the GPUs of CUDA once more. */
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_osdev(t, o));)
        if (!is_on_pci(o) && (is_of(o, "CUDA") || is_of(o, "RSMI")))
            NDP_TRY(add_gpu(t, NULL, o, out, gpus));
    ndp_node_choose_nics(out, gpus, nics);
    return NDP_OK;
}

/* ---- the tree ---- */

static ndp_status load(hwloc_topology_t t, const char *xml) {
    /* They start OpenCL and ask a display, for nothing that is read here. An error is that they are not there. */
    hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "opencl");
    hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "gl");
    hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    errno = 0;
    if (xml && hwloc_topology_set_xml(t, xml))
        return NDP_FAIL(NDP_EIO, "hwloc cannot read %s: %s", xml, strerror(errno ? errno : EINVAL));
    if (hwloc_topology_load(t) == 0)
        return NDP_OK;
    if (xml)
        return NDP_FAIL(NDP_EIO, "hwloc cannot load %s: it is not the XML of a node (lstopo node.xml writes one)", xml);
    return NDP_FAIL(NDP_EIO, "hwloc cannot read this node's sockets and devices: %s", strerror(errno));
}

ndp_status ndp_node_tree_read(const char *xml, ndp_node_tree *out) {
    ndp_status st;
    ndp_node_tree tree = {0};
    hwloc_topology_t t;
    const char *file = xml ? xml : getenv("HWLOC_XMLFILE");
    if (hwloc_topology_init(&t))
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the tree of this node");
    NDP_TRY_GOTO(load(t, file && *file ? file : NULL), end);
    NDP_TRY_GOTO(read_sockets(t, &tree), end);
    read_memory(t, &tree);
    NDP_TRY_GOTO(read_devices(t, &tree), end);
    *out = tree;
end:
    hwloc_topology_destroy(t);
    return st;
}
