/* Graphs as text, for golden files and a debugger. */
#ifndef NDP_TESTS_GRAPH_TEXT_H
#define NDP_TESTS_GRAPH_TEXT_H

#include "graph/graph.h"

/* Adds the graph, a line each: the values that no node makes, then the nodes of the three lists. */
void ndp_graph_print(const ndp_graph *g, ndp_str *out);

#endif
