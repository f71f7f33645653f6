#!/bin/sh
# The same for all layouts, micro-batches and connections.
export NDP_TEST_ALL=1
exec sh "$(dirname "$0")/test_connections.sh"
