// The last plane is no border
// expect: out of bounds, row error
// instead of: z < depth - 1)
// there is: z < depth)
